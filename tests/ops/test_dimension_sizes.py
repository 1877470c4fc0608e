"""Every element-wise op on arrays without elements, of rank 0, and on NaN alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import C64, F32, F64, PRED, S32, U32, ElementType
from distxla.ir.shape import Shape
from distxla.ops import elementwise_binary, elementwise_unary
from tests.compiler.runner import run_single
from tests.ops.agreement import disagreements, listed
from tests.ops.case import Case, joined
from tests.ops.matrix import joined_values

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SIZES = ((), (0,), (1,), (0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1))


def _preferred(domain: tuple[ElementType, ...]) -> Iterator[ElementType]:
    """One float, one integer and one complex type of the domain."""
    yield from (t for t in (F32, S32, C64) if t in domain)


def _cases(dims: tuple[int, ...]) -> Iterator[Case]:
    for row in elementwise_unary.ROWS:
        for element in _preferred(row.domain):
            yield Case(row.opcode, (Shape(element, dims),))
    for binary in elementwise_binary.ROWS:
        for element in _preferred(binary.domain):
            if not (element is C64 and binary.opcode in ("power", "atan2")):
                yield Case(binary.opcode, (Shape(element, dims),) * 2)
    f32 = Shape(F32, dims)
    yield Case("compare", (f32, f32), {"direction": "LT"})
    yield Case("select", (Shape(PRED, dims), f32, f32))
    yield Case("select", (Shape(PRED), f32, f32))
    yield Case("clamp", (Shape(F32), f32, f32))
    yield Case("convert", (f32,), result=Shape(C64, dims))
    yield Case("bitcast-convert", (f32,), result=Shape(U32, dims))
    yield Case("bitcast-convert", (Shape(F32, (*dims, 2)),), result=Shape(F64, dims))
    yield Case("reduce-precision", (f32,), {"exponent_bits": 5, "mantissa_bits": 10})
    yield Case("stochastic-convert", (f32, Shape(U32, dims)), result=Shape(S32, dims))
    if dims:
        yield Case("iota", (), {"iota_dimension": len(dims) - 1}, Shape(F32, dims))


@pytest.mark.sampled(one_in=12, first=("(3, 5, 0)",))
@pytest.mark.parametrize("dims", SIZES, ids=str)
def test_few_elements_or_none(dims: tuple[int, ...]) -> None:
    cases = list(_cases(dims))
    program = compile_module(joined(cases), Counts(1, 1))
    wrong = []
    for case, got in zip(cases, run_single(program, joined_values(cases)), strict=True):
        (wanted,) = case.evaluated()
        assert wanted is not None
        mask = disagreements(case, got, wanted)
        if mask.any():
            wrong.append(listed(case, mask, got, wanted, "instead of"))
    assert not wrong, "\n".join(wrong)


def test_nan_comes_out_of_every_float_function() -> None:
    """But where the other operand decides: x^0 and 1^x are 1."""
    rows = [*elementwise_unary.ROWS, *elementwise_binary.ROWS]
    cases = []
    for row in rows:
        if F32 in row.domain and row.opcode not in ("is-finite", "imag", "complex"):
            operands = (Shape(F32, (5,)),) * (1 if row in elementwise_unary.ROWS else 2)
            other = np.array([2, -1, 0.5, np.inf, np.nan], np.float32)
            cases.append(Case(row.opcode, operands, arguments=(np.full(5, np.nan, np.float32), other)[: len(operands)]))
    program = compile_module(joined(cases), Counts(1, 1))
    for case, got in zip(cases, run_single(program, joined_values(cases)), strict=True):
        assert np.isnan(got).all(), f"{case}: {got}"
