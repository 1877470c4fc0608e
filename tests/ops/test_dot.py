"""`dot`: shapes, types, batch and contracting dimensions in any order."""

from __future__ import annotations

import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module
from tests.ops.dot_cases import CASES, MATRICES
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees


@pytest.mark.parametrize(("element", "extreme"), [("s8", -128), ("u8", 255)])
def test_extreme_small_integers_are_summed_exactly(element: str, extreme: int) -> None:
    operands = (f"{element}[20,1500]", f"{element}[1500,20]")
    full = {0: [[extreme] * 1500] * 20, 1: [[extreme] * 20] * 1500}
    assert_compiled_agrees(StructuredCase(f"s32[20,20] dot(@), {MATRICES}", operands, arguments=full))


@pytest.mark.sampled(
    one_in=4, first=("s32[300]_dot(s32[35],s32[35,300]),_lhs_contracting_dims={0},_rhs_contracting_dims={0}",)
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    # libraries add up in an order of their own, by processor: sums of 256 terms that cancel differ by 1.5e-5 on some
    assert_compiled_agrees(case, factor=4.0)


@pytest.mark.parametrize(("size", "by_library"), [(2**31 - 8, True), (2**31 + 8, False)])
def test_sizes_beyond_the_librarys_integers_are_not_handed_to_it(size: int, by_library: bool) -> None:
    text = f"""HloModule long
ENTRY main {{
  a = f32[{size},2] parameter(0)
  b = f32[{size},2] parameter(1)
  ROOT d = f32[2,2] dot(a, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
}}
"""
    code = emit(parse_module(text), "llvm", Counts(1, 1))
    assert isinstance(code, str)
    assert ("@scipy_cblas_sgemm(" in code) == by_library
