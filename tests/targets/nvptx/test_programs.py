"""Whole programs with kernels for a GPU: the results of XLA, collectives, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.stages import emit
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.program.options import CompileOptions
from distxla.targets import nvptx
from distxla.targets.nvptx import architectures
from distxla.targets.nvptx.driver.driver import Driver
from distxla.targets.nvptx.driver.emulated.library import EmulatedLibrary
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.registry import backends, target_named
from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.collectives.worked_examples_cases import CASES
from tests.compiler.runner import run_devices
from tests.programs import PROGRAMS, ShardedProgram
from tests.samples import in_turn
from tests.targets.nvptx.assembler import ARCHITECTURES, assemble, needs_assembler

DP_MLP = next(program for program in PROGRAMS if program.name == "dp_mlp")


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize(
    ("program", "form"), in_turn(PROGRAMS, ["partitioned", "optimized"]), ids=lambda p: getattr(p, "name", p)
)
def test_programs_agree_with_xla(program: ShardedProgram, form: str) -> None:
    """All of their kernels have a form for a grid, but for those of single integers."""
    module = parse_module(program.text(form))
    compiled = compile_module(module, Counts(1, program.devices), CompileOptions(target="nvptx"))
    lines = str(emit(module, "ptx", Counts(1, program.devices))).splitlines()
    assert compiled.grid.launched
    assert not [line for line in lines if "on the host" in line and "because single integers, such as" not in line]
    program.assert_results(run_devices(compiled, program.arguments))


@needs_assembler
@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize(
    ("program", "architecture"), in_turn(PROGRAMS, ARCHITECTURES), ids=lambda p: getattr(p, "name", p)
)
def test_kernels_of_programs_assemble(program: ShardedProgram, architecture: str) -> None:
    module = parse_module(program.text("partitioned"))
    ptx = emit(module, "ptx", Counts(1, program.devices), gpu_architecture=architecture)
    assert assemble(str(ptx), architecture).startswith(b"\x7fELF")


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", CASES)
def test_collectives_give_worked_results(name: str) -> None:
    module, (replicas, partitions), operands, results = CASES[name]
    arguments = [[np.array(operand)] for operand in operands]
    outs = run_module("nvptx", module, arguments, replicas, partitions)
    assert [leaf.tolist() for (leaf,) in outs] == [np.array(wanted).tolist() for wanted in results]


def test_an_unknown_architecture() -> None:
    module = parse_module(DP_MLP.text("partitioned"))
    with pytest.raises(ArgumentError, match="'sm_20': kernels are made for sm_75, sm_80, sm_90, sm_100"):
        emit(module, "ptx", Counts(1, 8), gpu_architecture="sm_20")


@pytest.mark.parametrize("driver", ["emulated", "cuda"])
def test_the_backend_is_one_where_a_driver_is(driver: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISTXLA_GPU_DRIVER", raising=False)
    monkeypatch.setattr(nvptx, "DEVICE_FILE", str(tmp_path / "nvidiactl"))
    assert "gpu" not in backends()
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", driver)
    assert "gpu" in backends()
    assert target_named("nvptx").backend == "gpu"
    monkeypatch.delenv("DISTXLA_GPU_DRIVER")
    (tmp_path / "nvidiactl").touch()
    assert "gpu" in backends()


def test_without_a_gpu_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why, and what to do."""
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "cuda")

    def missing() -> Driver:
        return Driver(EmulatedLibrary([]))

    monkeypatch.setattr(architectures, "open_driver", missing)
    module = parse_module(DP_MLP.text("partitioned"))
    with pytest.raises(DriverError, match="the driver lists no GPU"):
        compile_module(module, Counts(1, 8), CompileOptions(target="nvptx"))
