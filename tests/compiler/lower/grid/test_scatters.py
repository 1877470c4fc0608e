"""Scatters on a grid: the processor's bits, whatever the order of threads, and by how many launches."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import both, differing
from tests.compiler.lower.grid.scatters_cases import CASES, COMBINED, ELEMENTS, module_text
from tests.ops.case import sample


@pytest.mark.sampled(one_in=18, first=("few rows-the last one",))
@pytest.mark.parametrize("combined", COMBINED)
@pytest.mark.parametrize("name", CASES)
def test_the_updates_keep_their_order(name: str, combined: str) -> None:
    *_, (low, high), launches = CASES[name]
    module = parse_module(module_text(name, "f32", combined))
    rng = np.random.default_rng(len(name))
    x, i, u = (p.shape for p in module.entry_computation.parameters)
    values = [rng.standard_normal(x.dims), rng.integers(low, high, i.dims), rng.standard_normal(u.dims)]
    arrays = [value.astype(shape.dtype.dtype) for value, shape in zip(values, (x, i, u), strict=True)]
    program, (wanted,), (got,) = both(module, arrays)
    assert [len(kernel.launches) for kernel in program.grid.launched] == [launches]
    assert wanted.tobytes() == got.tobytes()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("kind", ["pred", "s8", "u64", "bf16", "f8e5m2", "f64", "c64"])
def test_element_types(kind: str) -> None:
    module = parse_module(module_text("rows", kind, "the last one" if kind == "pred" else "add"))
    leaves = [p.shape for p in module.entry_computation.parameters]
    arrays = [sample(leaves[0], 1), np.arange(65, dtype=np.int32)[:, None] * 7 % 45 - 2, sample(leaves[2], 2)]
    _, (wanted,), (got,) = both(module, arrays)
    assert not differing(wanted, got).any()


def test_several_arrays() -> None:
    module = parse_module("""HloModule scatter
combine { a = f32[] parameter(0)  c = s32[] parameter(1)  b = f32[] parameter(2)  d = s32[] parameter(3)
  larger = pred[] compare(b, a), direction=GT  e = f32[] select(larger, b, a)  f = s32[] select(larger, d, c)
  ROOT r = (f32[], s32[]) tuple(e, f) }
ENTRY main {
  x = f32[9] parameter(0)  y = s32[9] parameter(1)  i = s32[100,1] parameter(2)
  u = f32[100] parameter(3)  v = s32[100] parameter(4)
  ROOT r = (f32[9], s32[9]) scatter(x, y, i, u, v), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=combine
}
""")
    rng = np.random.default_rng(0)
    u = rng.integers(-5, 5, 100).astype(np.float32)  # ties: the first one stays
    i = rng.integers(-1, 10, (100, 1)).astype(np.int32)
    arrays = [np.zeros(9, np.float32), np.full(9, -1, np.int32), i, u, np.arange(100, dtype=np.int32)]
    _, wanted, got = both(module, arrays)
    assert [w.tolist() for w in wanted] == [g.tolist() for g in got]


def test_very_many_elements_are_the_hosts() -> None:
    """One thread might have to apply them all."""
    count = (1 << 16) + 1
    module = parse_module(f"""HloModule scatter
combine {{ a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT r = s32[] add(a, b) }}
ENTRY main {{ x = s32[9] parameter(0)  i = s32[{count},1] parameter(1)  u = s32[{count}] parameter(2)
  ROOT r = s32[9] scatter(x, i, u), {ELEMENTS}, to_apply=combine }}
""")
    i = np.arange(count, dtype=np.int32)[:, None] % 11
    program, (wanted,), (got,) = both(module, [np.zeros(9, np.int32), i, np.ones(count, np.int32)])
    assert not program.grid.launched
    assert wanted.tolist() == got.tolist()
