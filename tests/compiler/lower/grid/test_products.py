"""Products by matrix units: right within the sums' rounding, and used where they are there."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.agreement import both

DOT = "dot(x, y), lhs_contracting_dims={%d}, rhs_contracting_dims={%d}"
# name: (operands, result, instruction)
PRODUCTS = {
    "one tile": ("64,64 64,64", "64,64", DOT % (1, 0)),
    "beyond the edges": ("70,50 50,33", "70,33", DOT % (1, 0)),
    "both transposed": ("50,70 65,50", "70,65", DOT % (0, 1)),
    "a long sum in pieces": ("33,1100 1100,40", "33,40", DOT % (1, 0)),
    "batches": (
        "3,34,40 3,40,35",
        "3,34,35",
        "dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "convolution": (
        "2,9,9,16 3,3,16,40",
        "2,7,7,40",
        "convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f",
    ),
}
UNITS = {
    "bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "f64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
}
STEPS = {"f32": float(np.finfo(np.float32).eps) * 16, "bf16": 2.0**-7, "f16": 2.0**-10, "f64": 2.0**-45}


def module_of(name: str, kind: str, result: str) -> Module:
    operands, dims, instruction = PRODUCTS[name]
    x, y = (f"{kind}[{dims}]" for dims in operands.split())
    parameters = f"x = {x} parameter(0)  y = {y} parameter(1)"
    return parse_module(f"HloModule m\nENTRY main {{ {parameters}  ROOT r = {result}[{dims}] {instruction} }}")


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize(
    ("kind", "result"), [("bf16", "f32"), ("bf16", "bf16"), ("f16", "f32"), ("f16", "f16"), ("f64", "f64")]
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_results(name: str, kind: str, result: str) -> None:
    module = module_of(name, kind, result)
    rng = np.random.default_rng(0)
    leaves = [p.shape for p in module.entry_computation.parameters]
    arrays = [rng.standard_normal(leaf.dims).astype(leaf.dtype.dtype) for leaf in leaves]
    _, (wanted,), (got,) = both(module, arrays)
    step = STEPS[result]  # an element of the result may be rounded to a neighbour
    exact = wanted.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=step, atol=step * np.abs(exact).max())


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    ("kind", "architecture", "expected"),
    [("bf16", "sm_80", True), ("f16", "sm_90", True), ("f64", "sm_80", True)]
    + [(kind, "sm_75", False) for kind in UNITS]
    + [(kind, "sm_90", False) for kind in ("f32", "f8e5m2", "s8")],
)
@pytest.mark.parametrize("name", ["one tile", "convolution"])
def test_units_are_used_where_they_are(name: str, kind: str, architecture: str, expected: bool) -> None:
    """And f32 is never rounded to fewer bits for them."""
    sums = "f32" if element_type(kind).is_float and element_type(kind).bits < 32 else "s32" if kind == "s8" else kind
    ptx = str(emit(module_of(name, kind, sums), "ptx", Counts(1, 1), gpu_architecture=architecture))
    assert UNITS[kind] in ptx if expected else "mma." not in ptx


def test_values_that_are_no_numbers() -> None:
    """Zeros beyond the edges meet no infinity of a neighbour."""
    module = module_of("beyond the edges", "bf16", "f32")
    x, y = (np.zeros(p.shape.dims, p.shape.dtype.dtype) for p in module.entry_computation.parameters)
    x[69, 49], x[3, 7], y[49, 32], y[7, 4] = np.inf, np.nan, 2, 1
    _, (wanted,), (got,) = both(module, [x, y])
    np.testing.assert_array_equal(wanted, got)
    assert np.isinf(got[69, 32])
    assert np.isnan(got[3, 4])
