"""Places in the GPU's memory for what a kernel reads and writes on the host."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.staging import ALIGNMENT, place
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
    "empty": ([(1000, 0), (1000, 8), (1008, 0)], 3),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_that_overlap_stay_together(name: str) -> None:
    ranges, pieces = RANGES[name]
    placed, end = place(ranges)
    assert len(placed) == pieces
    assert [one.place % ALIGNMENT for one in placed] == [0] * pieces
    ends = [one.place + one.end - one.start for one in placed]
    assert all(before <= following.place for before, following in zip(ends, placed[1:]))
    assert ends[-1] <= end
    for start, size in ranges:
        assert any(one.start <= start and start + size <= one.end for one in placed)


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
