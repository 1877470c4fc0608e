"""Row fusion: chains of reductions and maps run row by row, in one kernel, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.fuse import Fuse
from distxla.compiler.passes.fuse_rows import FuseRows
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.passes.equivalence import assert_same, changed, opcodes
from tests.compiler.runner import run_single

COMPUTATIONS = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}
"""

SOFTMAX = """ENTRY e {
  x = f32[D] parameter(0)
  zero = f32[] constant(0)
  lowest = f32[] constant(-inf)
  m = f32[R] reduce(x, lowest), dimensions={A}, to_apply=max
  mb = f32[D] broadcast(m), dimensions={K}
  s = f32[D] subtract(x, mb)
  e = f32[D] exponential(s)
  t = f32[R] reduce(e, zero), dimensions={A}, to_apply=add
  tb = f32[D] broadcast(t), dimensions={K}
  ROOT d = f32[D] divide(e, tb)
}
"""


def _softmax(dims: str, rest: str, axis: str, kept: str) -> str:
    text = SOFTMAX.replace("[D]", f"[{dims}]").replace("[R]", f"[{rest}]")
    return COMPUTATIONS + text.replace("{A}", f"{{{axis}}}").replace("{K}", f"{{{kept}}}")


# The mean keeps a dimension of size 1, and the variance is a result of its own.
NORMALISATION = (
    COMPUTATIONS
    + """ENTRY e {
  x = f32[6,5,64] parameter(0)
  g = f32[64] parameter(1)
  zero = f32[] constant(0)
  count = f32[6,5] constant({...})
  n = f32[] constant(64)
  nb = f32[6,5] broadcast(n), dimensions={}
  t = f32[6,5] reduce(x, zero), dimensions={2}, to_apply=add
  m = f32[6,5] divide(t, nb)
  kept = f32[6,5,1] reshape(m)
  back = f32[6,5] reshape(kept)
  mb = f32[6,5,64] broadcast(back), dimensions={0,1}
  c = f32[6,5,64] subtract(x, mb)
  q = f32[6,5,64] multiply(c, c)
  u = f32[6,5] reduce(q, zero), dimensions={2}, to_apply=add
  v = f32[6,5] divide(u, nb)
  w = f32[6,5] rsqrt(v)
  wb = f32[6,5,64] broadcast(w), dimensions={0,1}
  gb = f32[6,5,64] broadcast(g), dimensions={2}
  y = f32[6,5,64] multiply(c, wb)
  z = f32[6,5,64] multiply(y, gb)
  other = f32[30,64] reshape(z)
  ROOT r = (f32[6,5,64], f32[6,5,1], f32[6,5], f32[30,64]) tuple(z, kept, v, other)
}
""".replace("  count = f32[6,5] constant({...})\n", "")
)

# A sum over all rows stands between two row-wise steps: they must not become one fusion that waits for itself.
BETWEEN = (
    COMPUTATIONS
    + """ENTRY e {
  x = f32[8,64] parameter(0)
  zero = f32[] constant(0)
  a = f32[8,64] exponential(x)
  t = f32[8] reduce(a, zero), dimensions={1}, to_apply=add
  all = f32[] reduce(t, zero), dimensions={0}, to_apply=add
  tb = f32[8,64] broadcast(t), dimensions={0}
  ab = f32[8,64] broadcast(all), dimensions={}
  y = f32[8,64] divide(a, tb)
  ROOT r = f32[8,64] add(y, ab)
}
"""
)

# The second reduction reads other rows of the first one's result.
SHIFTED = (
    COMPUTATIONS
    + """ENTRY e {
  x = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  t = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  tb = f32[64,64] broadcast(t), dimensions={1}
  y = f32[64,64] multiply(x, tb)
  e = f32[64,64] exponential(y)
  ROOT u = f32[64] reduce(e, zero), dimensions={1}, to_apply=add
}
"""
)

CASES = {
    "softmax": (_softmax("6,40", "6", "1", "0"), 1),
    "attention": (_softmax("2,3,5,48", "2,3,5", "3", "0,1,2"), 1),
    "inner dimensions": (_softmax("4,8,12", "4,12", "1", "0,2"), 1),
    "columns": (_softmax("40,6", "6", "0", "1"), 0),
    "short rows": (_softmax("40,6", "40", "1", "0"), 0),
    "normalisation": (NORMALISATION, 1),
    "between": (BETWEEN, 1),
    "shifted": (SHIFTED, 0),
}


def _row_fusions(module: Module) -> int:
    entry = module.entry_computation
    called = [name for i in entry for name in i.op.called_computations]
    return sum("fusion" in opcodes(module, name) for name in called)


@pytest.mark.parametrize(("text", "count"), CASES.values(), ids=CASES)
def test_rows_are_fused_and_nothing_changes(text: str, count: int) -> None:
    module = changed(text, Fuse(), FuseRows(), DeadCode())
    assert _row_fusions(module) == count
    assert_same(text, module)


@pytest.mark.parametrize(("text", "count"), CASES.values(), ids=CASES)
def test_compiled_agrees_with_the_reference(text: str, count: int) -> None:
    module = parse_module(text)
    generator = np.random.default_rng(0)
    args = [generator.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry_computation.parameters]
    got = run_single(compile_module(module, Counts(1, 1)), args)
    for ours, wanted in zip(got, run_reference(module, [args], Counts(1, 1))[0], strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-5, atol=1e-6)


def test_a_long_row_is_left_to_several_kernels() -> None:
    text = _softmax("4,200000", "4", "1", "0")
    assert _row_fusions(changed(text, Fuse(), FuseRows(longest=1 << 19))) == 0
    assert _row_fusions(changed(text, Fuse(), FuseRows(longest=1 << 22))) == 1
