"""Global modules on the command line and in `distxla.jax.partition`: partitioned by XLA where nothing else will do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("jaxlib")

import distxla as dx
import distxla.jax as dxj
from distxla.cli.main import main
from distxla.compiler.partitioners import device_program
from distxla.compiler.verify.aliases import donated_leaves
from distxla.compiler.verify.verifier import verify_module
from distxla.jax.partitioner.global_modules import partition_hlo
from distxla.jax.partitioner.loading import load_module
from tests.jax.programs import numbers

DOT = """HloModule layer, num_partitions=4, buffer_donor={ (0, {1}), (1, {}) }

ENTRY main {
  p = (f32[8,4], f32[4]) parameter(0), sharding={{devices=[1,4]<=[4]}, {devices=[4]<=[4]}}
  x = f32[16,8] parameter(1), sharding={devices=[4,1]<=[4]}
  w = f32[8,4] get-tuple-element(p), index=0
  b = f32[4] get-tuple-element(p), index=1
  y = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="y" source_file="layer.py" source_line=3}
  wide = f32[16,4] broadcast(b), dimensions={1}
  ROOT z = f32[16,4] add(y, wide)
}
"""
ARGUMENTS = [numbers(8, 4), numbers(4), numbers(16, 8)]
EXPECTED = ARGUMENTS[2] @ ARGUMENTS[0] + ARGUMENTS[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "layer.hlo").write_text(DOT)
    np.savez(tmp_path / "args.npz", **{f"arg{k}": a for k, a in enumerate(ARGUMENTS)})
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Done(NamedTuple):
    """What a command has written."""

    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def distxla(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str, status: int = 0) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(words)
        done = Done(*capsys.readouterr())
        assert ended.value.code == status, done.stderr
        return done

    return run


def test_run_takes_and_gives_whole_arrays(folder: Path) -> None:
    """In a process of its own: pytest would take the notice."""
    command = ["run", "layer.hlo", "--args", "args.npz", "--out", "out.npz", "--backend", "reference"]
    done = subprocess.run([sys.executable, "-m", "distxla", *command], capture_output=True, text=True, check=True)
    assert re.fullmatch(
        r"distxla: layer\.hlo: partitioned for 4 partitions by XLA's partitioner \(jaxlib [\d.]+, .*\)\n", done.stderr
    )
    found = np.load("out.npz")
    np.testing.assert_allclose(found["out0"], EXPECTED, rtol=1e-5, atol=1e-6)
    assert found["out0@3"].shape[0] * 4 == 16 or found["out0@3"].shape[1] * 4 == 4


def test_check_answers_for_it(folder: Path, distxla: Command) -> None:
    done = distxla("check", "layer.hlo")
    assert "global: 4 partitions; cut: arg0 f32[8,4] into f32[8,1], arg1 f32[4] into f32[1]" in done.stdout
    assert "deadlock: none can happen on the 4 devices" in done.stdout
    assert json.loads(distxla("check", "--json", "layer.hlo").stdout)["outcome"] == "safe"


@pytest.mark.exhaustive
def test_the_partition_command_writes_a_program_that_runs(folder: Path, distxla: Command) -> None:
    distxla("partition", "layer.hlo", "-o", "part.hlo")
    assert Path("part.hlo").read_text() == distxla("partition", "layer.hlo", "--partitions", "4").stdout
    part = dx.load("part.hlo")
    assert (part.num_partitions, part.entry.endswith("_spmd")) == (4, True)
    assert device_program(part) is None
    assert "ok" in distxla("check", "part.hlo").stdout
    again = distxla("partition", "part.hlo", status=2)
    assert "part.hlo has been partitioned already" in again.stderr
    other = distxla("partition", "layer.hlo", "--partitions", "8", status=2)
    assert "the module is for 4 partitions, 8 are asked for" in other.stderr


def test_donation_and_places_survive() -> None:
    whole = device_program(dx.parse(DOT, "layer.hlo"))
    assert whole is not None
    verify_module(whole.module)
    assert donated_leaves(whole.module) == (1, 2)
    (dot,) = [i for i in whole.module.entry_computation if i.opcode == "dot"]
    assert str(whole.module.locate(dot)).startswith("layer.hlo (partitioned):")
    assert whole.module.frame(dot) == "layer.py:3"


def test_partition_of_a_lowered_function() -> None:
    pytest.importorskip("jax")
    from tests.jax.programs import P, lowered, mesh

    def f(x: Any, y: Any) -> Any:
        return x @ y

    product = lowered(f, mesh(2, 2), (numbers(4, 8), numbers(8, 4)), (P("x", "y"), P("y")))
    made = dxj.partition(product)
    assert isinstance(made, dx.Module)
    assert made.num_partitions == 4
    with pytest.raises(dx.ArgumentError, match="the module is for 4 partitions, 8 are asked for"):
        dxj.partition(product, partitions=8)


def test_the_mesh_of_a_manual_region_says_how_many_partitions(tmp_path: Path) -> None:
    """JAX states one for a `shard_map` over an abstract mesh whose arguments have no shardings."""
    jax = pytest.importorskip("jax")
    from tests.jax.programs import P, mesh, run, stablehlo

    on = mesh(4)
    f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=on, in_specs=P("x"), out_specs=P()))
    lowered = f.trace(jax.ShapeDtypeStruct((8,), np.float32)).lower(lowering_platforms=("cpu",))
    text = stablehlo(lowered)
    if "sdy.mesh" not in text:
        pytest.skip("this version of JAX lowers without Shardy: no mesh is in the module")
    (tmp_path / "f.mlir").write_text(text)
    module = load_module(tmp_path / "f.mlir")
    assert (module.num_partitions, dxj.partition(lowered).num_partitions) == (4, 4)
    np.testing.assert_allclose(run(partition_hlo(module, 4), [numbers(8)])[0], numbers(4, 2).sum(0), rtol=1e-6)


def test_what_partition_does_not_take() -> None:
    with pytest.raises(dx.ArgumentError, match=r"expected a jax\.stages.Lowered, a Module or StableHLO, found int"):
        dxj.partition(7)  # type: ignore[arg-type]
    with pytest.raises(dx.ArgumentError, match="partitions: expected their number"):
        dxj.partition("HloModule m\nENTRY e { ROOT x = f32[8] parameter(0) }")


def test_partition_of_text_is_that_of_the_file(tmp_path: Path) -> None:
    """Text as JAX prints it from 0.12 on, of which jaxlib's parsers take neither the named shardings nor the mark."""
    text = (
        "HloModule m, num_partitions=4\n"
        "double { p = f32[8] parameter(0) ROOT d = f32[8] add(p, p) }\n"
        "ENTRY e { x = f32[8] parameter(0), sharding={mesh['d'=4],[{'d'}]}\n"
        'y = f32[8] call(x), to_apply=double, frontend_attributes={inlineable="xla_late"}\n'
        "ROOT t = (f32[8], f32[8]) tuple(x, y), sharding={{mesh['d'=4],[{'d'}]}, {mesh['d'=4],[{'d'}]}} }"
    )
    (tmp_path / "m.hlo").write_text(text)
    module = load_module(tmp_path / "m.hlo")
    assert str(dxj.partition(text)) == str(dxj.partition(text.encode())) == str(dxj.partition(module))


def test_partition_of_stablehlo_takes_its_count() -> None:
    pytest.importorskip("jax")
    from tests.jax.programs import P, lowered, mesh, stablehlo

    product = lowered(lambda x: x * 2, mesh(4), (numbers(8),), (P("x"),))
    assert dxj.partition(stablehlo(product)).num_partitions == 4


def test_what_xla_refuses_keeps_its_place() -> None:
    sharding = "{devices=[2,2]<=[4] last_tile_dims={unreduced}}"
    text = f"HloModule m, num_partitions=4\nENTRY e {{ ROOT x = f32[8] parameter(0), sharding={sharding} }}"
    module = dx.parse(text, "m.hlo")
    with pytest.raises(dx.UnsupportedOpError) as caught:
        device_program(module)
    assert str(caught.value.location) == "m.hlo:2:41"
    assert any("XLA's partitioner was tried for 4 partitions: " in note for note in caught.value.__notes__)
