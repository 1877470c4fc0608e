"""What test_reduce.py shares with other tests."""

from __future__ import annotations

from tests.ops.structured_case import StructuredCase

CASES = [
    StructuredCase("f32[4] reduce(@), dimensions={1,0}, to_apply=add", ("f32[3,5,4]", "f32[]")),
    StructuredCase("f32[3,5] reduce(@), dimensions={2}, to_apply=add", ("f32[3,5,4]", "f32[]")),
    StructuredCase("f32[3,4] reduce(@), dimensions={1}, to_apply=max", ("f32[3,5,4]", "f32[]")),
    StructuredCase("f32[] reduce(@), dimensions={0,1,2}, to_apply=add", ("f32[3,5,4]", "f32[]")),
    # several lines, or steps, side by side, and those left over
    StructuredCase("f32[3,13] reduce(@), dimensions={2}, to_apply=add", ("f32[3,13,600]", "f32[]")),
    StructuredCase("s8[8] reduce(@), dimensions={0,2}, to_apply=add", ("s8[60,8,50]", "s8[]"), "s8"),
    StructuredCase("f32[3,70] reduce(@), dimensions={1}, to_apply=max", ("f32[3,21,70]", "f32[]")),
    StructuredCase("f32[70] reduce(@), dimensions={0,1}, to_apply=add", ("f32[5,11,70]", "f32[]")),
    # XLA leaves the initial value out where nothing is reduced
    StructuredCase("f32[3,5] reduce(@), dimensions={}, to_apply=add", ("f32[3,5]", "f32[]"), arguments={1: 0}),
    StructuredCase("f32[3] reduce(@), dimensions={1}, to_apply=add", ("f32[3,0]", "f32[]")),
    StructuredCase("f32[0] reduce(@), dimensions={1}, to_apply=add", ("f32[0,3]", "f32[]")),
    StructuredCase("s8[3] reduce(@), dimensions={1}, to_apply=add", ("s8[3,50]", "s8[]"), "s8"),
    StructuredCase("u64[3] reduce(@), dimensions={1}, to_apply=max", ("u64[3,50]", "u64[]"), "u64"),
    StructuredCase(
        "(f32[4], s32[4]) reduce(@), dimensions={1,0}, to_apply=argmax",
        ("f32[3,5,4]", "s32[3,5,4]", "f32[]", "s32[]"),
        arguments={2: -1e9},
    ),
    StructuredCase("f32[4,3] map(@), dimensions={0,1}, to_apply=max", ("f32[4,3]", "f32[4,3]")),
    StructuredCase("pred[7] map(@), dimensions={0}, to_apply=ge", ("f32[7]", "f32[7]")),
    StructuredCase("u32[] replica-id(@)"),
    StructuredCase("u32[] partition-id(@)"),
]
