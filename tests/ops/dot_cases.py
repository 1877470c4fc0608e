"""What test_dot.py shares with other tests."""

from __future__ import annotations

from tests.ops.structured_case import StructuredCase


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
