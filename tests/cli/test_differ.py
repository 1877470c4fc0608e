"""`distxla differ`: exit statuses, JSON, forms of programs and of arguments."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.called import call

LINE = 'metadata={{op_name="jit(f)/{}" source_file="layer.py" source_line={}}}'
DOT, TANH, SUM = LINE.format("dot_general", 4), LINE.format("tanh", 5), LINE.format("psum", 4)
ADD = "HloModule {}\n\nadd {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }}\n\n"
GROUPS = "replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true"
CONTRACT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

WHOLE = f"""HloModule whole

ENTRY main {{
  x = f32[8,16] parameter(0)
  w = f32[16,8] parameter(1)
  y = f32[8,8] dot(x, w), {CONTRACT}, {DOT}
  ROOT z = f32[8,8] tanh(y), {TANH}
}}
"""
# each device has a quarter of the columns of x and of the rows of w
PARTS = f"""{ADD.format("parts, num_partitions=4")}ENTRY main {{
  x = f32[8,4] parameter(0)
  w = f32[4,8] parameter(1)
  y = f32[8,8] dot(x, w), {CONTRACT}, {DOT}
  s = f32[8,8] all-reduce(y), to_apply=add, {GROUPS}, {SUM}
  ROOT z = f32[8,8] tanh(s), {TANH}
}}
"""
WITHOUT_SUM = PARTS.replace("tanh(s)", "tanh(y)")
AUTOMATIC = WHOLE.replace("HloModule whole", "HloModule automatic, num_partitions=4").replace(
    "parameter(0)", "parameter(0), sharding={devices=[1,4]<=[4]}"
)
MANUAL = """HloModule manual, num_partitions=2

ENTRY main {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  a = f32[4] custom-call(x), custom_call_target="Sharding", sharding={devices=[2]<=[2]}
  b = f32[2] custom-call(a), custom_call_target="SPMDFullToShardShape", sharding={manual}
  c = f32[2] negate(b)
  d = f32[2] custom-call(c), custom_call_target="Sharding", sharding={manual}
  ROOT e = f32[4] custom-call(d), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}
}
"""
NEGATED = "HloModule negated\n\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT c = f32[4] negate(x)\n}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The modules by name, and the whole arguments with their parts."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "whole": WHOLE,
        "parts": PARTS,
        "without_sum": WITHOUT_SUM,
        "automatic": AUTOMATIC,
        "manual": MANUAL,
        "negated": NEGATED,
    }.items():
        Path(f"{name}.hlo").write_text(text)
    random = np.random.default_rng(1)
    x, w = (random.normal(size=shape).astype("f") for shape in ((8, 16), (16, 8)))
    parts = {f"arg0@{d}": x[:, 4 * d : 4 * d + 4] for d in range(4)} | {
        f"arg1@{d}": w[4 * d : 4 * d + 4] for d in range(4)
    }
    np.savez("args.npz", arg0=x, arg1=w)
    np.savez("both.npz", arg0=x, arg1=w, **parts)
    np.savez("parts.npz", **parts)
    return tmp_path


def test_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "differ", "parts.hlo", "whole.hlo", "--args", "both.npz")
    assert (status, printed) == (0, "the same: 5 instructions compared\n")


def test_a_difference_has_its_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "differ", "without_sum.hlo", "whole.hlo", "--args", "both.npz", "--relations")
    assert status == 1
    assert printed.startswith("out0: differs\nfirst difference: not reduced at layer.py:4: y\n")
    assert (
        "hint: y (layer.py:4) has partial sums over all devices, and z (layer.py:5) uses each as the whole" in printed
    )
    assert "\n  x: a shard: dimension 1 over all devices [x]\n" in printed
    assert "\n  z (layer.py:5): none [z]\n" in printed


def test_the_page(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["differ", "without_sum.hlo", "whole.hlo", "--args", "both.npz", "--report", "page.html"]
    status, _, errors = call(capsys, *words)
    text = Path("page.html").read_text()
    assert status == 1
    assert "note: the report is in page.html\n" in errors
    assert "<h1>First difference: not reduced at layer.py:4</h1>" in text
    assert f"<dt>command</dt><dd>distxla {' '.join(words)}</dd>" in text
    assert call(capsys, *words[:-1], "nowhere/page.html")[0] == 2


def test_as_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, errors = call(capsys, "differ", "without_sum.hlo", "whole.hlo", "--args", "both.npz", "--json")
    found = json.loads(printed)
    assert status == 1
    assert not errors
    assert list(found) == ["format", "same", "first", "results", "relations"]
    assert found["format"] == 1
    assert found["same"] is False
    first = found["first"]
    assert list(first) == [
        "instruction", "op_name", "source", "iteration", "devices", "sharded", "unsharded", "kind", "hint", "use",
        "use_source",
    ]  # fmt: skip
    assert first["instruction"] == "y"
    assert first["op_name"] == "jit(f)/dot_general"
    assert first["source"] == "layer.py:4"
    assert first["iteration"] is None
    assert first["devices"] == [0, 1, 2, 3]
    assert (first["use"], first["use_source"]) == ("z", "layer.py:5")
    assert {tuple(sorted(each)) for each in found["relations"]} == {("instruction", "relation", "source", "twin")}


def test_json_of_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "differ", "parts.hlo", "whole.hlo", "--args", "both.npz", "--json")
    found = json.loads(printed)
    assert status == 0
    assert found["same"] is True
    assert found["first"] is None
    assert found["results"] == []


def test_parts_are_asked_for(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(capsys, "differ", "parts.hlo", "whole.hlo", "--generate")
    assert status == 2
    assert "parts.hlo does not say how arg0 is cut, which is [8, 16] as a whole and [8, 4] on a device" in errors


@pytest.mark.parametrize(
    ("module", "said"),
    [("parts", "parts.hlo is each device's program already"), ("manual", "computes with shards in manual regions")],
)
def test_an_unsharded_module_is_asked_for(
    module: str, said: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, errors = call(capsys, "differ", f"{module}.hlo", "--generate")
    assert status == 2
    assert said in errors
    assert "name the unsharded program, too" in errors


def test_manual_regions(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "differ", "manual.hlo", "negated.hlo", "--generate", "--relations")
    assert status == 0
    assert "c: a shard: dimension 0 over all devices [c]" in printed


def test_automatic_shardings_have_their_own_module(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jaxlib")
    status, printed, _ = call(capsys, "differ", "automatic.hlo", "--args", "args.npz", "--relations")
    assert status == 0
    assert "partial sums" in printed
    status, printed, _ = call(capsys, "differ", "automatic.hlo", "whole.hlo", "--args", "args.npz")
    assert status == 0


def test_two_dumps_are_compared_device_by_device(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "differ", "parts.hlo", "parts.hlo", "--args", "parts.npz", "--relations")
    assert status == 0
    assert "y (layer.py:4): the same [y]" in printed
    status, printed, _ = call(capsys, "differ", "without_sum.hlo", "parts.hlo", "--args", "parts.npz", "--json")
    found = json.loads(printed)
    assert status == 1
    assert found["results"] == ["out0 differs on 4 of 4 devices"]
    assert found["first"]["kind"] == "older value"  # y, where the other one has its sum
    assert found["first"]["source"] == "layer.py:4"


def test_one_device_of_two_dumps(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = PARTS.replace("{{0,1,2,3}}", "{{0,1,2},{3}}")
    Path("groups.hlo").write_text(groups)
    Path("others.hlo").write_text(groups.replace("{{0,1,2},{3}}", "{{0,1},{2},{3}}"))
    status, printed, _ = call(capsys, "differ", "groups.hlo", "others.hlo", "--args", "parts.npz", "--json")
    assert status == 1
    assert json.loads(printed)["results"] == ["out0 differs on 3 of 4 devices"]


def test_the_tolerance(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A factor that is larger than rounding, on one value."""
    more = "k = f32[] constant(1.001)\n f = f32[8,8] broadcast(k), dimensions={}\n m = f32[8,8] multiply(s, f)\n"
    Path("near.hlo").write_text(PARTS.replace("ROOT z = f32[8,8] tanh(s)", more + "ROOT z = f32[8,8] tanh(m)"))
    command = ("differ", "near.hlo", "whole.hlo", "--args", "both.npz")
    assert call(capsys, *command)[0] == 1
    assert call(capsys, *command, "--tolerance", "1e-5")[0] == 1
    assert call(capsys, *command, "--tolerance", "0.01")[0] == 0
    assert call(capsys, *command, "--tolerance", "-1")[0] == 2


@pytest.mark.parametrize("module", ["parts", "without_sum"])
def test_values_in_a_file_give_the_same_answer(module: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("differ", f"{module}.hlo", "whole.hlo", "--args", "both.npz", "--json")
    in_memory = call(capsys, *command)
    assert call(capsys, *command, "--memory", "0.000001") == in_memory  # 1 KiB, of 17 KiB


def test_programs_with_other_arguments_or_results(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(capsys, "differ", "parts.hlo", "negated.hlo", "--generate")
    assert status == 2
    assert "parts.hlo takes 2 arguments, its twin 1" in errors
    Path("two.hlo").write_text(
        WHOLE.replace("ROOT z", "z").replace("\n}", "\n  ROOT t = (f32[8,8], f32[8,8]) tuple(y, z)\n}")
    )
    status, _, errors = call(capsys, "differ", "parts.hlo", "two.hlo", "--args", "both.npz")
    assert status == 2
    assert "expected as many results of both programs, found 1 and 2" in errors


def test_generated_arguments_follow_the_seed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("halved.hlo").write_text(NEGATED.replace("negate(x)", "add(x, x)"))
    shown = [call(capsys, "differ", "halved.hlo", "negated.hlo", "--generate", "--seed", seed)[1] for seed in "112"]
    assert shown[0] == shown[1] != shown[2]


def test_the_time_limit(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(
        capsys, "differ", "parts.hlo", "whole.hlo", "--args", "both.npz", "--time-limit", "0.000001"
    )
    assert status == 5
    assert "time-limit" in errors


def test_axes_of_stablehlo_with_automatic_shardings(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jax = pytest.importorskip("jax")
    from tests.jax.programs import P, lowered, mesh, stablehlo

    arguments = [np.load("args.npz")[f"arg{k}"] for k in range(2)]
    sharded = lowered(lambda x, w: jax.numpy.tanh(x @ w), mesh(2, 4), arguments, [P("x", "y"), P("y")])
    Path("automatic.mlir").write_text(stablehlo(sharded))
    status, printed, _ = call(capsys, "differ", "automatic.mlir", "--args", "args.npz", "--relations")
    assert status == 0
    assert "partial sums over 'y', each a shard: dimension 0 over 'x'" in printed
    assert "another order" not in printed


def test_without_a_proof(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By default the module with automatic shardings is proved to be what it was before partitioning."""
    status, printed, _ = call(capsys, "differ", "automatic.hlo", "--args", "args.npz", "--json")
    proved = json.loads(printed)
    assert (status, proved["same"], proved["compared"]) == (0, True, False)
    status, printed, _ = call(capsys, "differ", "automatic.hlo", "--args", "args.npz", "--json", "--no-proof")
    run = json.loads(printed)
    assert (status, run["same"]) == (0, True)
    assert "proof" not in run
    assert [one["relation"] for one in run["relations"]] == [one["relation"] for one in proved["relations"]]
