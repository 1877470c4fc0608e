"""Reductions on a grid: all ways to share lines among threads, all kinds of computations."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import both, differing
from tests.compiler.lower.grid.reductions_cases import argmax_text, text
from tests.compiler.runner import run_single
from tests.ops.case import array as shape_of
from tests.ops.case import sample
from tests.samples import in_turn

# dimension sizes, reduced dimensions, number of launches
SHAPES = {
    "a thread a line": ((300, 40), (1,), 1),
    "a thread a line, across": ((100, 9000), (0,), 1),
    "a block a line": ((5, 1000), (1,), 1),
    "a block a line, fewer elements than threads": ((5, 100), (1,), 1),
    "a block a line, across": ((257, 3), (0,), 1),
    "a block a line, several dimensions": ((3, 4, 5, 70), (1, 3), 1),
    "several blocks a line": ((3, 20001), (1,), 2),
    "several blocks for all": ((40000,), (0,), 2),
    "several blocks a line, across": ((16500, 2), (0,), 2),
    "a block neighbouring lines": ((100, 40), (0,), 1),
    "a block neighbouring lines, fewer elements than they take turns": ((65, 2, 33), (0,), 1),
    "several blocks neighbouring lines": ((3, 299, 33), (1,), 2),
}
SINGLE = {
    ("add", "s32"): "0",
    ("add", "u8"): "3",
    ("multiply", "s64"): "1",
    ("maximum", "f32"): "-inf",
    ("minimum", "bf16"): "inf",
    ("and", "pred"): "true",
    ("xor", "u16"): "9",
}


@pytest.mark.sampled(
    one_in=12,
    first=(
        "several blocks a line, across-1-operation25",
        "a block neighbouring lines, fewer elements than they take turns-0-operation30",
    ),
)
@pytest.mark.parametrize(("shape", "number", "operation"), in_turn(SHAPES, range(3), SINGLE))
def test_exact_operations(shape: str, number: int, operation: tuple[str, str]) -> None:
    """Those that give the same in any order, NaN included. number: of three operations for each shape."""
    (dims, reduced, launches), (opcode, kind) = SHAPES[shape], operation
    module = parse_module(text(opcode, kind, SINGLE[opcode, kind], dims, reduced))
    program, wanted, got = both(module, [sample(shape_of(kind, *dims), 1)])
    assert [len(kernel.launches) for kernel in program.grid.launched] == [launches]
    assert not differing(wanted[0], got[0]).any()


@pytest.mark.sampled(one_in=6, first=("a block a line-c64",))
@pytest.mark.parametrize("kind", ["f16", "f32", "f64", "c64"])
@pytest.mark.parametrize(
    "shape",
    ["a block a line", "several blocks a line", "a block neighbouring lines", "several blocks neighbouring lines"],
)
def test_sums_of_floats(shape: str, kind: str) -> None:
    """In another order than the processor's; the same one each time."""
    dims, reduced, _ = SHAPES[shape]
    module = parse_module(text("add", kind, "(1, 0)" if kind == "c64" else "1", dims, reduced))
    values = np.random.default_rng(0).uniform(0, 1, dims).astype(element_type(kind).dtype)
    program, _, (got,) = both(module, [values])
    (again,) = run_single(program, [values])
    wide = values.astype(np.complex128 if kind == "c64" else np.float64)
    exact = wide.sum(reduced) + 1
    np.testing.assert_allclose(got.astype(wide.dtype), exact, rtol=2e-3 if kind == "f16" else 1e-6)
    assert got.tobytes() == again.tobytes()


@pytest.mark.sampled(one_in=3, first=("4-333-1",))
@pytest.mark.parametrize(
    ("lines", "count", "along"), [(3, 50, 1), (4, 333, 1), (2, 17000, 1), (40, 100, 0), (99, 300, 0)]
)
def test_computations_that_are_only_associative_keep_the_order(lines: int, count: int, along: int) -> None:
    module = parse_module(argmax_text(lines, count, along))
    values = np.random.default_rng(1).integers(0, 20, module.entry_computation.parameters[0].shape.dims)
    _, wanted, got = both(module, [values.astype(np.float32)])
    assert got[1].tolist() == values.argmax(along).tolist()
    assert got[2].tolist() == [count - 1] * lines
    assert all(one.tobytes() == other.tobytes() for one, other in zip(wanted, got, strict=True))


@pytest.mark.parametrize("count", [70, 1000, 4000])
def test_warps_exchange_values_without_memory(count: int) -> None:
    """Whatever the number of elements, a block waits twice: for its warps' values, and for the next line's."""
    ptx = str(emit(parse_module(text("add", "f32", "0", (200, count), (1,))), "ptx", Counts(1, 1)))
    assert ptx.count("bar.sync") == 2
    assert ptx.count("shfl.sync.down.b32") > 4
