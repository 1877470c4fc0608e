"""What test_convolution.py shares with other tests."""

from __future__ import annotations

from tests.ops.structured_case import StructuredCase


def _convolution(result: str, lhs: str, rhs: str, attributes: str) -> StructuredCase:
    return StructuredCase(f"{result} convolution(@), {attributes}", (lhs, rhs))


SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"

CASES = [
    _convolution("f32[2,12,12,8]", "f32[2,12,12,3]", "f32[3,3,3,8]", SAME),
    _convolution("f32[2,7,7,32]", "f32[2,7,7,32]", "f32[3,3,1,32]", f"{SAME}, feature_group_count=32"),
    _convolution("f32[2,7,7,64]", "f32[2,7,7,32]", "f32[3,3,1,64]", f"{SAME}, feature_group_count=32"),
    _convolution(
        "f32[2,64,7,7]",
        "f32[2,32,7,7]",
        "f32[64,1,3,3]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=32",
    ),
    _convolution(
        "f32[2,3,3,16]",
        "f32[2,6,6,8]",
        "f32[3,3,4,16]",
        "window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f, feature_group_count=2",
    ),
    _convolution(
        "f32[2,6,6,8]",
        "f32[2,3,3,16]",
        "f32[3,3,8,8]",
        "window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f, feature_group_count=2",
    ),
    _convolution(
        "f32[3,3,3,8]",
        "f32[2,12,12,3]",
        "f32[2,12,12,8]",
        "window={size=12x12 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
    ),
    _convolution(
        "f32[3,3,4,16]",
        "f32[2,6,6,8]",
        "f32[2,3,3,16]",
        "window={size=3x3 pad=0_1x0_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf, batch_group_count=2",
    ),
    _convolution(
        "f32[2,8,5,6]",
        "f32[2,5,11,8]",
        "f32[8,5,3,2]",
        "window={size=3x2 stride=2x1 pad=-1_2x1_-1 rhs_dilate=1x2 rhs_reversal=1x0}, dim_labels=bf01_oi01->bf01",
    ),
    _convolution("f32[4,6]", "f32[4,5]", "f32[5,6]", "dim_labels=bf_io->bf"),
    _convolution("f32[4,6,9]", "f32[4,5,9]", "f32[5,6,1]", "window={size=1}, dim_labels=bf0_io0->bf0"),
    _convolution(
        "f32[2,4,4,4,6]",
        "f32[2,8,8,8,3]",
        "f32[2,2,2,3,6]",
        "window={size=2x2x2 stride=2x2x2}, dim_labels=b012f_012io->b012f",
    ),
    _convolution("f32[3,0,4]", "f32[3,1,2]", "f32[2,2,4]", "window={size=2}, dim_labels=b0f_0io->b0f"),
    _convolution("f32[3,2,4]", "f32[3,0,2]", "f32[2,2,4]", "window={size=2 pad=1_2}, dim_labels=b0f_0io->b0f"),
    # long runs of features where the window hangs over: tested, not copied
    _convolution("f32[3,20,20,4]", "f32[3,20,20,40]", "f32[3,3,40,4]", SAME),
    # weights too many for the cache are taken in parts, the last of them shorter; columns that fill no vector
    _convolution(
        "s32[3,3,8,64]",
        "s32[4,34,34,8]",
        "s32[4,34,34,64]",
        "window={size=34x34 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
    ),
    _convolution(
        "s32[3,3,3,70]",
        "s32[4,34,34,3]",
        "s32[4,34,34,70]",
        "window={size=34x34 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
    ),
    # a matrix product for every batch index; features between the spatial dimensions
    _convolution("f32[3,20,5,7]", "f32[3,6,5,7]", "f32[20,6,1,1]", "window={size=1x1}, dim_labels=bf01_oi01->bf01"),
    _convolution("f32[3,5,20,7]", "f32[5,6,7,3]", "f32[1,6,20,1]", "window={size=1x1}, dim_labels=0f1b_0io1->b0f1"),
    # a copy with all its gaps would be far longer than the input
    _convolution(
        "f32[1,3,3,2]",
        "f32[1,8,8,3]",
        "f32[2,2,3,2]",
        "window={size=2x2 stride=99x99 lhs_dilate=33x33 pad=0_0x0_0}, dim_labels=b01f_01io->b01f",
    ),
    *(
        _convolution(f"{result}[2,6,6,8]", f"{t}[2,6,6,4]", f"{t}[3,3,4,8]", SAME)
        for t, result in (("bf16", "bf16"), ("f16", "f16"), ("s8", "s32"), ("f64", "f64"), ("c64", "c64"))
    ),
]
