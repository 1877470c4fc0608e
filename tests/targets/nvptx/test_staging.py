"""Copies of what a kernel reads and writes, and what a kernel's fault leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from distxla.compiler.artifact import ImportedKernel
from distxla.compiler.compile import compile_module
from distxla.targets.nvptx import load
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.binding import Binding
from distxla.targets.nvptx.driver.emulated.library import EmulatedLibrary
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.staging import ALIGNMENT, ProcessGpu, StagedKernels, lay_out, offset_of
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices, run_single

IN_PLACE = """
HloModule in_place
ENTRY main {
  x = f32[16,5] parameter(0)
  y = f32[2,5] parameter(1)
  at = s32[] parameter(2)
  zero = s32[] constant(0)
  z = f32[16,5] dynamic-update-slice(x, y, at, zero)
  ROOT r = f32[16,5] dynamic-update-slice(z, y, zero, zero)
}
"""
# ranges of the host (start, bytes), and how many pieces of memory they are
RANGES = {
    "apart": ([(1000, 40), (2000, 300)], 2),
    "twice the same": ([(1000, 40), (1000, 40)], 1),
    "a part of another": ([(1000, 400), (1128, 64)], 1),
    "neighbours": ([(1000, 24), (1024, 40)], 2),
    "in a chain": ([(1000, 100), (1050, 100), (1149, 10)], 1),
    "empty": ([(1000, 0), (1000, 8), (1004, 0), (1008, 0)], 1),
    "an empty one before one with a part": ([(1000, 0), (1000, 4096), (1128, 64)], 1),
    "nothing": ([(1000, 0)], 0),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_that_overlap_stay_together(name: str) -> None:
    ranges, pieces = RANGES[name]
    placed, end = lay_out(ranges)
    assert len(placed) == pieces
    assert [one.offset % ALIGNMENT for one in placed] == [0] * pieces
    ends = [one.offset + one.end - one.start for one in placed]
    assert all(before <= following.offset for before, following in zip(ends, placed[1:]))
    assert all(each <= end for each in ends)
    for start, size in ranges:
        for other, other_size in ranges:
            if size and other_size and other < start + size and start < other + other_size:
                assert offset_of(placed, other) - offset_of(placed, start) == other - start
        assert not size or any(one.start <= start and start + size <= one.end for one in placed)


def test_kernels_that_write_their_operands() -> None:
    x, y = np.arange(80, dtype=np.float32).reshape(16, 5), -np.ones((2, 5), np.float32)
    wanted = x.copy()
    wanted[[7, 8, 0, 1]] = -1
    program = compile_module(parse_module(IN_PLACE), replicas=1, partitions=1, target="nvptx")
    assert isinstance(program.device_code, DeviceCode)
    assert run_single(program, [x, y, np.int32(7)])[0].tolist() == wanted.tolist()


def test_a_program_runs_again_and_again() -> None:
    program = compile_module(parse_module(IN_PLACE), replicas=1, partitions=1, target="nvptx")
    devices = Devices(program)
    try:
        for k in range(3):
            x, y = np.full((16, 5), k, np.float32), np.full((2, 5), -k, np.float32)
            (found,) = devices([[x, y, np.int32(14)]])[0]
            assert found[:, 0].tolist() == [-k, -k, *[k] * 12, -k, -k]
    finally:
        devices.close()
        devices.close()


def test_a_fault_loses_the_gpu_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error says what failed, later ones that it has; closing is no further error."""
    gpu = ProcessGpu(Binding(EmulatedLibrary()).context(0))
    monkeypatch.setattr(load, "_gpu", lambda driver: gpu)
    program = compile_module(parse_module(IN_PLACE), replicas=1, partitions=1, target="nvptx")
    monkeypatch.setattr(StagedKernels, "_launch", launch_beyond)
    said: list[str] = []
    image = load.load_image(program, report=lambda why, frames: said.append(why))
    monkeypatch.setattr(load, "load_image", lambda *_: image)
    devices = Devices(program)
    for _ in range(2):
        with pytest.raises(AssertionError, match="status"):
            devices([[np.zeros((16, 5)), np.zeros((2, 5)), np.int32(0)]])
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said[0]
    assert "this process lost GPU 0" in said[1]
    with pytest.raises(DriverError, match=r"this process lost GPU 0 .*: open the cluster anew"):
        StagedKernels(gpu, program.device_code)  # type: ignore[arg-type]
    image.close()
    image.close()


def launch_beyond(kernels: StagedKernels, kernel: ImportedKernel, arguments: Sequence[int]) -> None:
    launch = kernel.launches[0]
    function = kernels._function(launch.symbol)
    beyond = [1 << 40] * len(arguments)
    kernels._context.launch(function, (launch.blocks, 1, 1), (launch.threads, 1, 1), beyond, kernels._stream)


def test_unloaded_programs_leave_nothing_with_the_emulated_driver() -> None:
    library = EmulatedLibrary()
    gpu = ProcessGpu(Binding(library).context(0))
    program = compile_module(parse_module(IN_PLACE), replicas=1, partitions=1, target="nvptx")
    assert isinstance(program.device_code, DeviceCode)
    context = library.context_of(0)
    before = len(context.held)
    for _ in range(3):
        kernels = StagedKernels(gpu, program.device_code)
        for kernel in program.kernels:
            kernels._function(kernel.launches[0].symbol)
        kernels.close()
    assert len(context.held) == before
