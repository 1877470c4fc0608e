"""Element-wise kernels that read across the order of their results: when they take tiles, and that bits are kept."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import both, differing
from tests.compiler.lower.grid.transposes_cases import transpose_text
from tests.ops.case import array as shape_of
from tests.ops.case import sample
from tests.samples import in_turn

# dimension sizes, permutation, blocks where tiles are taken, else None
SHAPES = {
    "even": ((64, 96), (1, 0), 6),
    "odd": ((33, 65), (1, 0), 6),
    "batches": ((3, 40, 20), (0, 2, 1), 6),
    "reversed": ((40, 5, 70), (2, 1, 0), 30),
    "rotated": ((40, 6, 7), (1, 2, 0), 4),
    "a short side": ((300, 8), (1, 0), None),
    "the last dimension stays": ((20, 30, 40), (1, 0, 2), None),
}


WIDTHS = ["f32", "bf16", "f8e5m2", "pred"], ["s4", "s64", "c64", "c128"]


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize(("name", "kind"), [case for kinds in WIDTHS for case in in_turn(SHAPES, kinds)])
def test_bits(name: str, kind: str) -> None:
    dims, order, blocks = SHAPES[name]
    value = sample(shape_of(kind, *dims), 1)
    program, _, (got,) = both(parse_module(transpose_text(kind, dims, order)), [value])
    ((launch,),) = (kernel.launches for kernel in program.grid.launched)
    assert blocks is None or launch.blocks == blocks
    assert got.tobytes() == value.transpose(order).tobytes()
    ptx = str(emit(parse_module(transpose_text(kind, dims, order)), "ptx", Counts(1, 1)))
    assert ptx.count("bar.sync") == (0 if blocks is None else 2)


FUSED = """HloModule fused
ENTRY main {
  x = f32[50,70] parameter(0)
  y = f32[50,70] parameter(1)
  z = f32[70,50] parameter(2)
  s = f32[50,70] add(x, y)
  t = f32[70,50] transpose(s), dimensions={1,0}
  u = f32[70,50] OPERATION
  v = bf16[70,50] convert(u)
  ROOT r = (f32[70,50], bf16[70,50]) tuple(u, v)
}
"""


@pytest.mark.parametrize(
    ("operation", "tiles"),
    [("multiply(t, z)", True), ("cosine(t)", True), ("clamp(z, t, z)", True), ("negate(z)", False)],
)
def test_fusions(operation: str, *, tiles: bool) -> None:
    """Where more arrays are read across than along, several results included."""
    values = [
        np.random.default_rng(k).normal(size=dims).astype("f") for k, dims in enumerate([(50, 70)] * 2 + [(70, 50)])
    ]
    module = parse_module(FUSED.replace("OPERATION", operation))
    program, wanted, got = both(module, values)
    assert [a.dtype for a in got] == [element_type(kind).dtype for kind in ("f32", "bf16")]
    assert not any(differing(one, other).any() for one, other in zip(wanted, got, strict=True))
    ptx = str(emit(module, "ptx", Counts(1, 1)))
    assert ptx.count("bar.sync") == 2 * tiles
    assert all(launch.blocks == (6 if tiles else 14) for kernel in program.grid.launched for launch in kernel.launches)
