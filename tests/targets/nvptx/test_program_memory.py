"""A program's arrays in the GPU's memory: where they are, what is copied, and what a kernel's fault leaves behind."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.program.options import CompileOptions
from distxla.targets.nvptx import load
from distxla.targets.nvptx.call_state import STAGED_ALIGNMENT, STAGING_BYTES
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.driver import Driver
from distxla.targets.nvptx.driver.emulated.library import EmulatedLibrary
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.process_gpu import ProcessGpu
from distxla.targets.nvptx.program_memory import ALIGNMENT, DeviceRanges, ProgramOnGpu
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices, run_single
from tests.targets.nvptx.driver_calls import replace_driver_function

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
    """Every byte has a place of its own, a range's bytes side by side, and what overlaps nothing is aligned."""
    ranges, pieces = RANGES[name]
    placed = DeviceRanges(ranges)
    found = {byte: placed.offset_of(byte) for start, size in ranges for byte in range(start, start + size)}
    offsets = [offset for offset in found.values() if offset is not None]
    assert len(set(offsets)) == len(found)
    assert all(offset < placed.bytes for offset in offsets)
    for start, size in ranges:
        first = found.get(start)
        if size and first is not None:
            assert [found[start + k] for k in range(size)] == [first + k for k in range(size)]
    begins = [found[start] or 0 for start in {start for start, size in ranges if size and not inside(start, ranges)}]
    assert [begin % ALIGNMENT for begin in begins] == [0] * pieces
    assert placed.offset_of(min(found, default=1000) - 1) is None
    assert placed.offset_of(max(found, default=1000) + 1) is None


def inside(byte: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether a range has this byte and the one before it."""
    return any(start < byte < start + size for start, size in ranges)


def test_kernels_that_write_their_operands() -> None:
    x, y = np.arange(80, dtype=np.float32).reshape(16, 5), -np.ones((2, 5), np.float32)
    wanted = x.copy()
    wanted[[7, 8, 0, 1]] = -1
    program = compile_module(parse_module(IN_PLACE), Counts(1, 1), CompileOptions(target="nvptx"))
    assert isinstance(program.grid.device_code, DeviceCode)
    assert run_single(program, [x, y, np.int32(7)])[0].tolist() == wanted.tolist()


def test_a_program_without_kernels() -> None:
    """Only constants and copies: the host makes its results in its own memory."""
    module = parse_module(
        "HloModule m  ENTRY e { x = f32[3] parameter(0)  c = f32[4,2] constant({{1,2},{3,4},{5,6},{7,8}})"
        "  ROOT r = (f32[3], f32[4,2], f32[4,2]) tuple(x, c, c) }"
    )
    program = compile_module(module, Counts(1, 1), CompileOptions(target="nvptx"))
    x = np.arange(3, dtype=np.float32)
    wanted = [x.tolist(), *2 * [[[1, 2], [3, 4], [5, 6], [7, 8]]]]
    assert [found.tolist() for found in run_single(program, [x])] == wanted


def test_a_program_runs_again_and_again() -> None:
    program = compile_module(parse_module(IN_PLACE), Counts(1, 1), CompileOptions(target="nvptx"))
    devices = Devices(program)
    try:
        for k in range(3):
            x, y = np.full((16, 5), k, np.float32), np.full((2, 5), -k, np.float32)
            (found,) = devices([[x, y, np.int32(14)]])[0]
            assert found[:, 0].tolist() == [-k, -k, *[k] * 12, -k, -k]
    finally:
        devices.close()
        devices.close()


@pytest.mark.usefixtures("emulator")
def test_a_fault_loses_the_gpu_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error says what failed, later ones that it has; closing is no further error."""
    gpu = ProcessGpu(Driver(EmulatedLibrary()).context(0), "emulated", (12, 8))
    monkeypatch.setattr(load, "gpu_of", lambda *_: gpu)
    program = compile_module(parse_module(IN_PLACE), Counts(1, 1), CompileOptions(target="nvptx"))
    replace_driver_function(monkeypatch, "cuLaunchKernel", launch_beyond)
    said: list[str] = []
    image = load.load_image(program, report=lambda why, frames: said.append(why))
    monkeypatch.setattr(load, "load_image", lambda *_: image)
    devices = Devices(program)
    for _ in range(2):
        with pytest.raises(AssertionError, match="status"):
            devices([[np.zeros((16, 5)), np.zeros((2, 5)), np.int32(0)]])
    assert "at r (dynamic-update-slice) or before it: " in said[0]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said[0]
    assert "this process lost GPU 0" in said[1]
    with pytest.raises(DriverError, match=r"this process lost GPU 0 .*: open the cluster anew"):
        ProgramOnGpu(gpu, program, program.grid.device_code)  # type: ignore[arg-type]
    image.close()
    image.close()


def launch_beyond(launch: Any, function: int, *rest: Any) -> int:
    """Where no allocation is: all leaves of the kernel."""
    places = rest[-2]
    for number in range(1, 6):
        value = ctypes.c_void_p.from_address(places + 8 * number).value or 0
        ctypes.c_uint64.from_address(value).value = 1 << 40
    return int(launch(function, *rest))


@pytest.mark.usefixtures("emulator")
def test_unloaded_programs_leave_nothing_with_the_emulated_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    library = EmulatedLibrary()
    gpu = ProcessGpu(Driver(library).context(0), "emulated", (12, 8))
    monkeypatch.setattr(load, "gpu_of", lambda *_: gpu)
    program = compile_module(parse_module(IN_PLACE), Counts(1, 1), CompileOptions(target="nvptx"))
    (context,) = library.contexts.values()
    before = len(context.held)
    for _ in range(3):
        run_single(program, [np.zeros((16, 5)), np.ones((2, 5)), np.int32(1)])
    assert len(context.held) == before


# each round writes its number
COUNTING = """
HloModule counting
condition { s = (s32[], s32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(ROUNDS)
  ROOT less = pred[] compare(i, n), direction=LT }
body { s = (s32[], s32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  x = s32[4] get-tuple-element(s), index=1  four = s32[] constant(4)  k = s32[] remainder(i, four)
  y = s32[1] reshape(i)  z = s32[4] dynamic-update-slice(x, y, k)  j = s32[] add(i, one)
  ROOT r = (s32[], s32[4]) tuple(j, z) }
ENTRY main { x = s32[4] parameter(0)  zero = s32[] constant(0)  s = (s32[], s32[4]) tuple(zero, x)
  l = (s32[], s32[4]) while(s), condition=condition, body=body  ROOT r = s32[4] get-tuple-element(l), index=1 }
"""
# a loop whose body reads w, and takes one step after another over x; its count is the host's
LOOP = """
HloModule loop
greater { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GT }
condition {
  s = (s32[], f32[300], f32[300]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[300], f32[300]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  x = f32[300] get-tuple-element(s), index=1
  w = f32[300] get-tuple-element(s), index=2
  y = f32[300] sine(x)
  z = f32[300] sort(y), dimensions={0}, to_apply=greater
  t = f32[300] multiply(z, w)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[300], f32[300]) tuple(j, t, w)
}
ENTRY main {
  x = f32[300] parameter(0)
  w = f32[300] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[300], f32[300]) tuple(zero, x, w)
  l = (s32[], f32[300], f32[300]) while(s), condition=condition, body=body
  ROOT r = f32[300] get-tuple-element(l), index=1
}
"""


def test_arrays_stay_on_the_gpu_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments go there once, the result comes back once, and nobody waits in between."""
    called: list[str] = []
    for name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"):

        def noted(function: Any, *arguments: Any, name: str = name) -> int:
            called.append(f"{name} {arguments[2]}" if "Memcpy" in name else name)
            return int(function(*arguments))

        replace_driver_function(monkeypatch, name, noted)
    x, w = np.linspace(0, 3, 300, dtype=np.float32), np.full(300, 1.25, np.float32)
    module = parse_module(LOOP)
    ours, wanted = (
        run_single(compile_module(module, Counts(1, 1), CompileOptions(target=target)), [x, w])[0]
        for target in ("nvptx", None)
    )
    assert ours.tolist() == wanted.tolist()
    there, back, wait = "cuMemcpyHtoDAsync_v2 1200", "cuMemcpyDtoHAsync_v2 1200", "cuStreamSynchronize"
    assert called == [there, there, back, wait, wait]


@pytest.mark.usefixtures("emulator")
def test_more_uploads_than_there_is_memory_to_stage_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two integers go to the GPU in each round: the program waits when all memory for that is in use."""
    waits: list[int] = []

    def noted(function: Any, stream: int) -> int:
        waits.append(stream)
        return int(function(stream))

    replace_driver_function(monkeypatch, "cuStreamSynchronize", noted)
    rounds = STAGING_BYTES // (2 * STAGED_ALIGNMENT) + 100
    module = parse_module(COUNTING.replace("ROUNDS", str(rounds)))
    program = compile_module(module, Counts(1, 1), CompileOptions(target="nvptx"))
    (found,) = run_single(program, [np.zeros(4, np.int32)])
    assert found.tolist() == [(rounds - 1 - k) // 4 * 4 + k for k in range(4)]
    assert len(waits) == 3  # in the midst, for the result, and at the end


@pytest.mark.usefixtures("emulator")
def test_results_are_wrong_where_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated driver does nothing before it has to, so a forgotten wait shows."""
    x, w = np.linspace(0, 3, 300, dtype=np.float32), np.full(300, 1.25, np.float32)
    program = compile_module(parse_module(LOOP), Counts(1, 1), CompileOptions(target="nvptx"))
    wanted = run_single(program, [x, w])[0]
    replace_driver_function(monkeypatch, "cuStreamSynchronize", lambda driver, stream: 0)
    assert run_single(program, [x, w])[0].tolist() != wanted.tolist()
