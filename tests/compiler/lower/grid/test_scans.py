"""Cumulative results on a grid: lines of all lengths, in one and in several levels of chunks."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import both
from tests.compiler.lower.grid.scans_cases import windows

# dimension sizes, scanned dimension, launches
SHAPES = {
    "short": ((3, 64), 1, 1),
    "many lines": ((2, 90, 4096), 1, 1),
    "chunks": ((3, 96), 1, 3),
    "chunks and a rest, across": ((2, 200, 3), 1, 4),
    "two levels": ((7000,), 0, 7),
}


@pytest.mark.sampled(one_in=9, first=("chunks-multiply-3-True",))
@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize(("opcode", "initial"), [("add", "5"), ("maximum", "-7"), ("multiply", "3")])
@pytest.mark.parametrize("shape", SHAPES)
def test_exact_operations(shape: str, opcode: str, initial: str, *, from_end: bool) -> None:
    dims, axis, launches = SHAPES[shape]
    values = np.random.default_rng(0).integers(-100, 100, dims).astype(np.int32)
    program, wanted, got = both(parse_module(windows(opcode, "s32", initial, dims, axis, from_end=from_end)), [values])
    assert [len(kernel.launches) for kernel in program.grid.launched] == [launches]
    assert wanted[0].tolist() == got[0].tolist()


@pytest.mark.parametrize(("kind", "tolerance"), [("f32", 1e-5), ("f64", 1e-13)])
def test_sums_of_floats(kind: str, tolerance: float) -> None:
    values = np.random.default_rng(0).uniform(0, 1, (2, 3000)).astype(kind.replace("f", "float"))
    _, _, (got,) = both(parse_module(windows("add", kind, "1", (2, 3000), 1, from_end=False)), [values])
    np.testing.assert_allclose(got, values.astype(np.float64).cumsum(1) + 1, rtol=tolerance)


SCAN = """HloModule scan
step {
  a = s32[] parameter(0)  b = s32[] parameter(1)  c = s32[] parameter(2)  d = s32[] parameter(3)
  none = s32[] constant(-1)
  empty = pred[] compare(a, none), direction=EQ
  last = s32[] select(empty, c, a)
  sum = s32[] add(b, d)
  ROOT r = (s32[], s32[], s32[], s32[]) tuple(last, sum, last, sum)
}
ENTRY main {
  x = s32[1500] parameter(0)  y = s32[1500] parameter(1)  i = s32[] parameter(2)  j = s32[] parameter(3)
  ROOT r = (s32[1500], s32[1500], s32[], s32[]) scan(x, y, i, j), dimensions={0}, num_carries=2, to_apply=step,
    is_associative=ASSOCIATIVE, is_reverse=REVERSE
}
"""


@pytest.mark.parametrize("reverse", ["false", "true"])
@pytest.mark.parametrize(("associative", "launches"), [("true", 5), ("false", 1)])
def test_scan(associative: str, launches: int, reverse: str) -> None:
    """The last number that is there, and a sum; in steps that may be grouped, and that may not."""
    x, y = (np.random.default_rng(k).integers(-1, 2, 1500).astype(np.int32) for k in range(2))
    text = SCAN.replace("ASSOCIATIVE", associative).replace("REVERSE", reverse)
    program, wanted, got = both(parse_module(text), [x, y, np.int32(7), np.int32(3)])
    assert [len(kernel.launches) for kernel in program.grid.launched] == [launches]
    assert [a.tolist() for a in wanted] == [a.tolist() for a in got]
    assert got[3] == y.sum() + 3
