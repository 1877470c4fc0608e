"""`dot`: shapes, types, batch and contracting dimensions in any order."""

from __future__ import annotations

import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees


def _dot(result: str, lhs: str, rhs: str, attributes: str = "") -> StructuredCase:
    return StructuredCase(f"{result} dot(@)" + (f", {attributes}" if attributes else ""), (lhs, rhs))


MATRICES = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CASES = [
    _dot("f32[2,10]", "f32[2,16]", "f32[16,10]", MATRICES),
    _dot("f32[64,48]", "f32[64,40]", "f32[40,48]", MATRICES),
    _dot("f32[16,10]", "f32[2,16]", "f32[2,10]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    _dot("f32[16,10]", "f32[16,2]", "f32[10,2]", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    _dot("f32[]", "f32[7]", "f32[7]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    _dot("f32[3]", "f32[3,7]", "f32[7]", MATRICES),
    _dot("f32[3,4]", "f32[3]", "f32[4]"),
    _dot("f32[]", "f32[]", "f32[]"),
    _dot("f32[3,4]", "f32[3,0]", "f32[0,4]", MATRICES),
    _dot("f32[0,4]", "f32[0,3]", "f32[3,4]", MATRICES),
    _dot(
        "f32[2,2,8,8]",
        "f32[2,8,2,16]",
        "f32[2,8,2,16]",
        "lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}",
    ),
    _dot(
        "f32[3,4,5]",
        "f32[3,2,4,7]",
        "f32[7,5,3,2]",
        "lhs_batch_dims={0}, lhs_contracting_dims={1,3}, rhs_batch_dims={2}, rhs_contracting_dims={3,0}",
    ),
    _dot("s32[13,11]", "s8[13,17]", "u8[17,11]", MATRICES),
    _dot("f32[13,11]", "bf16[13,17]", "bf16[17,11]", MATRICES),
    # few rows by a long matrix, a remainder of its rows; inner products side by side, a remainder of them
    _dot("f32[3,300]", "f32[3,21]", "f32[21,300]", MATRICES),
    _dot("s32[300]", "s32[35]", "s32[35,300]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    _dot("bf16[4,256]", "bf16[4,64]", "bf16[64,256]", MATRICES),
    _dot("f64[7]", "f64[7,37]", "f64[37]", MATRICES),
    # tiles in registers: whole vectors where they lie, a copy of the right side, parts of long sums
    _dot("f32[300,64]", "f32[300,256]", "f32[256,64]", MATRICES),
    _dot("f32[300,150]", "f32[300,97]", "f32[97,150]", MATRICES),
    _dot("f64[300,150]", "f64[300,97]", "f64[97,150]", MATRICES),
    # small integers as floats, in parts that are exact: the result wider, as wide, unsigned with negative sums
    _dot("s32[65,70]", "s8[65,1100]", "s8[1100,70]", MATRICES),
    _dot("u32[65,70]", "s8[65,1100]", "u8[1100,70]", MATRICES),
    _dot(
        "u8[2,40,50]",
        "u8[2,40,300]",
        "u8[2,50,300]",
        "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={2}",
    ),
    _dot("s32[20,170]", "s32[20,2050]", "s32[2050,170]", MATRICES),
    _dot("s64[23,21]", "s64[31,23]", "s64[21,31]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    _dot(
        "f32[5,200,144]",
        "f32[5,200,32]",
        "f32[5,144,32]",
        "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={2}",
    ),
    *(
        _dot(f"{t}[13,11]", f"{t}[13,17]", f"{t}[17,11]", MATRICES)
        for t in ("s4", "s8", "u8", "s16", "s32", "u64", "f16", "bf16", "f64", "c64", "c128")
    ),
]


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
