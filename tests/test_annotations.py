"""docs/guide/annotations.md, row by row: what each annotation does on several partitions and on one."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import distxla as dx
from distxla.cli.main import commands
from distxla.compiler.passes.bind_custom_calls import BindCustomCalls
from distxla.compiler.passes.partitioning import device_program
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError, UnsupportedOpError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.lower.harness import Kernel
from tests.executable import require_executable
from tests.global_modules import GSPMD, SHARDY
from tests.programs import PROGRAMS

PAGE = (Path(__file__).parent.parent / "docs" / "guide" / "annotations.md").read_text()
X = np.arange(32, dtype=np.float32).reshape(8, 4)
MESHES = next(iter(re.findall(r"`(xla\.sdy\.meshes=\{.*\})`", PAGE)))


def table(header: str) -> list[tuple[str, ...]]:
    """The rows of the page's table whose first column has this header, without its code marks."""
    lines = PAGE.split("\n")
    start = next(k for k, line in enumerate(lines) if line.startswith(f"| {header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("| "):
            break
        rows.append(tuple(cell.strip().strip("`") if cell.count("`") == 2 else cell.strip() for cell in cells(line)))
    return rows


def cells(line: str) -> list[str]:
    return line.strip("| ").split(" | ")


def refusal(text: str, partitions: int | None) -> DistxlaError | None:
    """The error that keeps a module from being run, as check, run, compile and a cluster raise it; None if it runs."""
    module = parse_module(text, "m.hlo")
    try:
        whole = device_program(module, partitions)
        module = module if whole is None else whole.module
        verify_module(module, 1, partitions)
        require_executable(module)
    except UnsupportedOpError as error:
        return error
    return None


def assert_outcome(text: str, outcomes: tuple[str, str], at: str) -> None:
    """outcomes: on 4 partitions and on 1.  at: what the line that a refusal points to holds."""
    for partitions, outcome in zip((4, 1), outcomes, strict=True):
        error = refusal(text, partitions)
        if outcome == "refused":
            assert error is not None
            assert error.location is not None
            assert at in error.location.text
        else:
            assert outcome == "identity"
            assert error is None
            for row in run_reference(parse_module(text), [[X]] * partitions, Counts(1, partitions)):
                assert np.array_equal(np.asarray(row[0]), X)
    # nobody says how many partitions there are: as many as the annotations speak of
    assert (refusal(text, None) is not None) == (outcomes[0] == "refused")


PLACES = {
    "a parameter": "ENTRY e { x = f32[8,4] parameter(0), sharding=%s\n  ROOT y = f32[8,4] copy(x) }",
    "an instruction": "ENTRY e { x = f32[8,4] parameter(0)\n  c = f32[8,4] copy(x), sharding=%s\n"
    "  ROOT y = f32[8,4] copy(c) }",
    "the root": "ENTRY e { x = f32[8,4] parameter(0)\n  ROOT y = f32[8,4] copy(x), sharding=%s }",
    "a tuple": "ENTRY e { x = f32[8,4] parameter(0)\n"
    "  ROOT y = (f32[8,4], f32[8,4]) tuple(x, x), sharding={{replicated}, %s} }",
    "a called computation": "f { p = f32[8,4] parameter(0)\n  ROOT c = f32[8,4] copy(p), sharding=%s }\n"
    "ENTRY e { x = f32[8,4] parameter(0)\n  ROOT y = f32[8,4] call(x), to_apply=f }",
    "a fusion": "f { p = f32[8,4] parameter(0)\n  ROOT c = f32[8,4] copy(p), sharding=%s }\n"
    "ENTRY e { x = f32[8,4] parameter(0)\n  ROOT y = f32[8,4] fusion(x), kind=kLoop, calls=f }",
    "a domain": "ENTRY e { x = f32[8,4] parameter(0)\n"
    '  ROOT y = f32[8,4] domain(x), domain={kind="sharding", entry={replicated}, exit=%s} }',
}


@pytest.mark.parametrize(("sharding", "several", "one"), table("`sharding=`"))
def test_shardings(sharding: str, several: str, one: str) -> None:
    for place in PLACES.values():
        assert_outcome(place % sharding, (several, one), sharding)


@pytest.mark.parametrize(("sharding", "several", "one"), table("`xla.sdy.sharding=`"))
def test_shardy_s_attribute(sharding: str, several: str, one: str) -> None:
    quoted = sharding.replace('"', r"\"")
    attribute = f'frontend_attributes={{xla.sdy.sharding="{quoted}"}}'
    head = f"HloModule m, frontend_attributes={{{MESHES}}}\nENTRY e {{ x = f32[8,4] parameter(0)"
    for text in (
        f"{head}, {attribute}\n  ROOT y = f32[8,4] copy(x) }}",
        f"{head}\n  ROOT y = f32[8,4] copy(x), {attribute} }}",
    ):
        assert_outcome(text, (several, one), "xla.sdy.sharding")


@pytest.mark.parametrize(("call", "several", "one"), table("instruction, of `x = f32[8,4]`"))
def test_custom_calls(call: str, several: str, one: str) -> None:
    has_result = not call.startswith("()")
    z = f"{call.partition(' ')[0]} copy(y)" if has_result else "f32[8,4] copy(x)"
    text = f"ENTRY e {{ x = f32[8,4] parameter(0)\n  y = {call}\n  ROOT z = {z} }}"
    assert_outcome(text, (several, one), call)
    if one == "identity" and has_result:
        module = parse_module(f"ENTRY e {{ x = f32[8,4] parameter(0)\n  ROOT y = {call} }}")
        assert np.array_equal(Kernel(module)(X), X)
        bound = BindCustomCalls().run(parse_module(text))
        assert not any(isinstance(i.op, CustomCall) for i in bound.entry_computation)
        assert np.array_equal(np.asarray(run_reference(bound, [[X]], Counts(1, 1))[0][0]), X)


CUT = "sharding={devices=[4]<=[4]}"
SUM = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
"""
ALL_REDUCE = "all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add"
# the modules of the rows of "How a partitioned module is recognised"; all have num_partitions in the header
EVIDENCE = {
    "its entry computation is named": [
        f"ENTRY main.7_spmd {{ ROOT x = f32[2] parameter(0), {CUT} }}",
        f"ENTRY main_spmd.clone.1 {{ x = f32[2] parameter(0), {CUT}\n  ROOT y = f32[2] copy(x), {CUT} }}",
    ],
    "it has an attribute": [
        f"{SUM}ENTRY main {{ x = f32[2] parameter(0), "
        r'frontend_attributes={xla.sdy.sharding="#sdy.sharding<mesh<[\"x\"=4]>, [{\"x\"}]>"}'
        f"\n  ROOT y = f32[2] {ALL_REDUCE} }}"
    ],
    "a sharding that would be refused is elsewhere": [
        f"{SUM}ENTRY main {{ x = f32[2] parameter(0)\n  c = f32[2] copy(x), {CUT}\n  ROOT y = f32[2] {ALL_REDUCE} }}",
        f"f {{ ROOT x = f32[2] parameter(0), {CUT} }}\nENTRY main {{ x = f32[2] parameter(0)\n"
        "  id = u32[] partition-id()\n  ROOT y = f32[2] call(x), to_apply=f }",
    ],
    "it has a partition-id": [
        f"ENTRY main {{ x = f32[2] parameter(0), {CUT}\n"
        f"  id = u32[] partition-id()\n  ROOT y = f32[2] copy(x), {CUT} }}",
        f"{SUM}ENTRY main {{ x = f32[2] parameter(0), {CUT}\n  ROOT y = f32[2] {ALL_REDUCE} }}",
        f"ENTRY main {{ x = f32[2] parameter(0), {CUT}\n"
        "  ROOT y = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}} }",
        f"ENTRY main {{ x = f32[2] parameter(0), {CUT}\n  t = token[] after-all()\n"
        "  i = ((f32[2]), token[]) infeed(t), sharding={{maximal device=0}, {maximal device=0}}\n"
        "  id = u32[] partition-id()\n  ROOT y = f32[2] copy(x) }",
        f"ENTRY main {{ x = f32[2] parameter(0), {CUT}\n  t = token[] after-all()\n"
        "  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, "
        'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}\n  d = token[] send-done(s), channel_id=1\n'
        "  r = (f32[2], u32[], token[]) recv(t), channel_id=1, "
        'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}\n'
        "  ROOT y = (f32[2], token[]) recv-done(r), channel_id=1 }",
    ],
    "none of these": [
        f"ENTRY main {{ ROOT x = f32[2] parameter(0), {CUT} }}",
        f"ENTRY step_spmd.5 {{ ROOT x = f32[2] parameter(0), {CUT} }}",
        f"{SUM}ENTRY main {{ x = f32[2] parameter(0), {CUT}\n  ROOT y = f32[2] all-reduce(x), to_apply=add }}",
        f"{SUM}ENTRY main {{ x = f32[2] parameter(0), {CUT}\n"
        f"  ROOT y = f32[2] {ALL_REDUCE}, sharding={{replicated}} }}",
        f"ENTRY main {{ x = f32[2] parameter(0), {CUT}\n  ROOT id = u32[] partition-id(), sharding={{manual}} }}",
    ],
}


def test_all_rows_on_partitioned_modules_have_modules() -> None:
    rows = table("a module with a sharding that would be refused")
    assert len(rows) == len(EVIDENCE)
    assert all(row.startswith(begin) for (row, _), begin in zip(rows, EVIDENCE, strict=True))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (text, outcome)
        for (_, outcome), texts in zip(table("a module with a sharding that would be refused"), EVIDENCE.values())
        for text in texts
    ],
)
def test_partitioned_modules_run_and_global_ones_do_not(text: str, outcome: str) -> None:
    error = refusal("HloModule m, num_partitions=4\n" + text, None)
    assert (error is None) == (outcome == "partitioned")


SUBGROUP = r"devices=[1,4,2]<=[8] last_tile_dims={manual, replicated}"
BORDERS = {
    "in the entry computation": SHARDY,
    "in a loop or branch": """c { p = f32[4] parameter(0)
  ROOT no = pred[] constant(false) }
b { p = f32[4] parameter(0)
  s = f32[2] custom-call(p), custom_call_target="SPMDFullToShardShape", sharding={manual}
  ROOT f = f32[4] custom-call(s), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]} }
ENTRY e { p = f32[4] parameter(0)
  ROOT w = f32[4] while(p), condition=c, body=b }
""",
    "that make only some axes": SHARDY.replace(r"manual_axes{\"y\", \"x\"}", r"manual_axes{\"y\"}"),
    "with a sharding inside": GSPMD.replace(
        "b1 = f32[2] add(b, zeros)", "b1 = f32[2] add(b, zeros), sharding={devices=[2,4]<=[8] last_tile_dims={manual}}"
    ),
    "with an array that would have to be resharded": SHARDY.replace(
        "b = f32[8] parameter(1)\n", "b = f32[8] parameter(1), sharding={devices=[8]<=[8]}\n"
    ),
}


@pytest.mark.parametrize(("row", "begin"), list(zip(table("borders"), BORDERS, strict=True)))
def test_borders_of_manual_regions(row: tuple[str, str], begin: str) -> None:
    assert row[0].startswith(begin)
    assert (refusal(BORDERS[begin], None) is None) == (row[1] == "honoured")


IN = "x = f32[8,4] parameter(0), sharding="
LOOP = """c { p = f32[8,4] parameter(0)%s
  ROOT no = pred[] constant(false) }
b { ROOT p = f32[8,4] parameter(0)%s }
ENTRY e { x = f32[8,4] parameter(0)
  ROOT w = f32[8,4] while(x), condition=c, body=b%s }
"""
BRANCH = """a { ROOT p = f32[8,4] parameter(0)%s }
b { ROOT p = f32[8,4] parameter(0)%s }
ENTRY e { i = s32[] parameter(0)
  x = f32[8,4] parameter(1)
  ROOT w = f32[8,4] conditional(i, x, x), branch_computations={a, b}%s }
"""
ROWS_CUT, COLUMNS_CUT = ", sharding={devices=[4,1]<=[4]}", ", sharding={devices=[1,4]<=[4]}"
PAIR = "x = (f32[8,4], f32[8,4]) parameter(0), sharding="
BROKEN = {
    "sharding.C1": [
        f"{PAIR}{{{{replicated}}}}",
        f"{PAIR}{{{{replicated}}, {{{{replicated}}, {{replicated}}}}}}",
        f"{IN}{{{{replicated}}}}",
        "x = () parameter(0), sharding={{replicated}, {replicated}}",
    ],
    "sharding.C2": [
        f"{IN}{{devices=[4]<=[4]}}",
        f"{IN}{{devices=[2,1,2]<=[4]}}",
        f"{IN}{{devices=[2,2]<=[4] last_tile_dim_replicate}}",
        f"{IN}{{mesh['x'=4], [{{'x'}}]}}",
        f"{IN}{{mesh['x'=4], [{{}}], unreduced={{'x'}}}}",
        f"{PAIR}{{{{replicated}}, {{devices=[4]<=[4]}}}}",
        f"{PAIR}{{devices=[4]<=[4]}}",
        "x = (f32[8,4], token[]) parameter(0), sharding={devices=[4,1]<=[4]}",
    ],
    "sharding.C3": [f"{IN}{{devices=[4,1]0,1,1,2}}"],
    "sharding.C4": [
        f"{IN}{{devices=[4,1]0,1,2,4}}",
        f"{IN}{{devices=[2,1]<=[2]}}",
        f"{IN}{{devices=[8,1]<=[8]}}",
        f"{IN}{{maximal device=4}}",
        f"{IN}{{mesh['x'=8], [{{'x'}}, {{}}]}}",
    ],
    "sharding.C5": [
        LOOP % (ROWS_CUT, COLUMNS_CUT, ""),
        LOOP % ("", ROWS_CUT, ", sharding={replicated}"),
        BRANCH % (ROWS_CUT, COLUMNS_CUT, ""),
        BRANCH % ("", ", sharding={devices=[4,1]3,2,1,0}", ROWS_CUT),
    ],
}
KEPT = [
    LOOP % (ROWS_CUT, "", ", sharding={devices=[4,1]0,1,2,3}"),
    LOOP % ("", ", sharding={replicated}", ", sharding={devices=[1,1,4]<=[4] last_tile_dim_replicate}"),
    BRANCH % (ROWS_CUT, ROWS_CUT, ""),
    f"{PAIR}{{devices=[4,1]<=[4]}}",
    "x = () parameter(0), sharding={{replicated}}",
    "x = () parameter(0), sharding={replicated}",
    "x = token[] parameter(0), sharding={devices=[4]<=[4]}",
    "x = (f32[], token[]) parameter(0), sharding={{replicated}, {maximal device=0}}",
    f"{IN}{{devices=[1,8]<=[8] last_tile_dim_replicate}}",
]


def _module(text: str, partitions: int = 4) -> Module:
    body = text if "ENTRY" in text else f"ENTRY e {{ ROOT {text} }}"
    return parse_module(f"HloModule m, num_partitions={partitions}\n{body}", "m.hlo")


def test_all_rules_have_modules() -> None:
    assert [rule for rule, _ in table("rule")] == list(BROKEN)


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in BROKEN.items() for text in texts])
def test_broken_rules(rule: str, text: str) -> None:
    with pytest.raises(VerificationError, match=f"^[^ ]* verify: {rule}: ") as caught:
        verify_module(_module(text))
    assert caught.value.location is not None
    assert "sharding" in caught.value.location.text


@pytest.mark.parametrize("text", KEPT)
def test_kept_rules(text: str) -> None:
    verify_module(_module(text))


def test_devices_that_do_not_exist_are_no_matter_where_there_is_one_partition_or_nobody_says() -> None:
    for text in BROKEN["sharding.C4"]:
        verify_module(_module(text, 1))
        verify_module(parse_module(f"ENTRY e {{ ROOT {text} }}"))


def test_a_sharding_prints_as_it_was_read() -> None:
    for sharding, _, _ in table("`sharding=`"):
        module = parse_module(PLACES["the root"] % sharding)
        assert f"sharding={sharding}" in print_module(module)
        assert print_module(parse_module(print_module(module))) == print_module(module)


def test_the_error_says_what_the_module_needs_and_how_to_get_it() -> None:
    text = "HloModule m, num_partitions=4\nENTRY e { ROOT x = f32[8] parameter(0), sharding={devices=[4]<=[4]} }"
    error = refusal(text, None)
    assert str(error).startswith(
        "m.hlo:2:41: unsupported: x (parameter) is cut into tiles, {devices=[4]<=[4]}, but the module has not been "
        "partitioned: each of 4 partitions would compute all of it on arrays of its own. It needs an SPMD partitioner, "
        "which distxla itself is not; give it what XLA's "
        "partitioner makes of the module: in JAX jax.jit(f).lower(*args).compile().as_text()"
    )
    assert str(error).split("\n")[1:] == [
        "    ENTRY e { ROOT x = f32[8] parameter(0), sharding={devices=[4]<=[4]} }",
        "                                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]


@pytest.mark.parametrize(
    "command",
    [["check"], ["run"], ["run", "--backend", "reference"], ["compile"], ["compile", "--emit", "llvm"]],
    ids=" ".join,
)
@pytest.mark.parametrize("counts", [[], ["--partitions", "4"], ["--replicas", "4"]], ids=" ".join)
def test_all_commands_refuse_it_alike_without_jaxlib(
    command: list[str], counts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    text = "ENTRY e { ROOT x = f32[8] parameter(0), sharding={devices=[4]<=[4]} }"
    (tmp_path / "m.hlo").write_text(text)
    wanted = refusal(text, 4)
    assert wanted is not None
    run = CliRunner().invoke(commands, [*command, *counts, str(tmp_path / "m.hlo")], standalone_mode=False)
    assert isinstance(run.exception, UnsupportedOpError)
    assert run.exception.__notes__ == [
        "hint: with pip install 'distxla[jax]' distxla partitions it by XLA's own partitioner"
    ]
    assert run.exception.message == wanted.message
    assert run.exception.location is not None
    assert (run.exception.location.line, run.exception.location.column) == (1, 41)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_shardy", [True, False])
def test_what_jax_lowers_is_refused(is_shardy: bool) -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.AbstractMesh((4, 2), ("d", "m"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d", None))
    x = jax.ShapeDtypeStruct((64, 32), np.float32)
    cut = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=by_rows)
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", is_shardy)
    try:
        for function, argument in (
            (lambda x: x @ x.T, cut),
            (lambda x: jax.lax.with_sharding_constraint(x + 1, by_rows), x),
        ):
            lowered = jax.jit(function).trace(argument).lower(lowering_platforms=("cpu",))
            error = refusal(lowered.as_text("hlo"), None)
            assert error is not None
            assert "each of 8 partitions would compute all of it" in error.message
            assert refusal(lowered.as_text("hlo"), 1) is None
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.parametrize("form", ["partitioned", "optimized"])
def test_what_xla_has_partitioned_runs(form: str) -> None:
    for program in PROGRAMS:
        assert "sharding={devices=" in program.text(form)
        assert refusal(program.text(form), None) is None


def test_a_builder_checks_shardings_as_values_are_added_and_points_at_its_line() -> None:
    b = dx.XlaBuilder("b", num_partitions=4)
    with b.sharding("{devices=[2,2]<=[4]}"):
        with pytest.raises(VerificationError, match=r"sharding.C2: .* cuts 2 dimensions, f32.8. has 1"):
            b.parameter(0, "f32[8]")
        x = b.parameter(0, "f32[8,8]")
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with (
        b.sharding("{devices=[2,1]<=[2]}"),
        pytest.raises(VerificationError, match=r"sharding.C4: .* is over 2 devices"),
    ):
        x + x
    with pytest.raises(UnsupportedOpError, match="is cut into tiles") as caught:
        device_program(b.build(x))
    assert caught.value.location is not None
    assert (Path(caught.value.location.file).name, caught.value.location.line) == ("test_annotations.py", line)


def test_a_layout_constraint_is_what_a_bitcast_sees() -> None:
    text = """ENTRY e { x = f32[8,4]{1,0} parameter(0)
  y = f32[8,4]{0,1} custom-call(x), custom_call_target="LayoutConstraint"
  ROOT z = f32[4,8]{1,0} bitcast(y) }"""
    for module in (parse_module(text), Pipeline(verify=True).before("schedule").run(parse_module(text)).module):
        assert np.array_equal(np.asarray(run_reference(module, [[X]], Counts(1, 1))[0][0]), X.T)
