"""What test_windows.py shares with other tests."""

from __future__ import annotations

from tests.ops.structured_case import StructuredCase

POOL = "window={size=1x2x2x1 stride=1x2x2x1}"


def _reduced(
    result: str, operands: tuple[str, ...], attributes: str, initial: float = 0, element: str = "f32"
) -> StructuredCase:
    values = {len(operands) // 2: initial}
    return StructuredCase(f"{result} reduce-window(@), {attributes}", operands, element, values)


REDUCED = [
    _reduced("f32[2,6,6,8]", ("f32[2,12,12,8]", "f32[]"), f"{POOL}, to_apply=max", -1e30),
    _reduced(
        "(f32[2,6,6,8], s32[2,6,6,8])",
        ("f32[2,12,12,8]", "s32[2,12,12,8]", "f32[]", "s32[]"),
        f"{POOL}, to_apply=argmax",
        -1e30,
    ),
    _reduced(
        "f32[4,4]",
        ("f32[4,6]", "f32[]"),
        "window={size=3x2 stride=2x1 pad=1_2x-1_1 lhs_dilate=2x1 rhs_dilate=1x2}, to_apply=add",
    ),
    _reduced("f32[7]", ("f32[7]", "f32[]"), "window={size=7 pad=6_0}, to_apply=add"),
    _reduced("f32[3]", ("f32[0]", "f32[]"), "window={size=2 pad=2_2}, to_apply=add", 1),
    _reduced("f32[0,3]", ("f32[0,3]", "f32[]"), "window={size=1x1}, to_apply=add"),
    _reduced("f32[]", ("f32[]", "f32[]"), "to_apply=add"),
    # Prefixes and suffixes: cumulative sums, as JAX writes them.
    _reduced("f32[7]", ("f32[7]", "f32[]"), "window={size=7 pad=0_6}, to_apply=add", 2),
    _reduced("f32[3,40]", ("f32[3,40]", "f32[]"), "window={size=1x40 pad=0_0x39_0}, to_apply=add"),
    _reduced("f32[40,3]", ("f32[40,3]", "f32[]"), "window={size=40x1 pad=39_0x0_0}, to_apply=add"),
    _reduced("f32[2,20,37]", ("f32[2,20,37]", "f32[]"), "window={size=1x20x1 pad=0_0x0_19x0_0}, to_apply=add"),
    _reduced("f32[2,4]", ("f32[2,4]", "f32[]"), "window={size=1x6 pad=0_0x5_0}, to_apply=max", -1e30),
    _reduced("s8[50]", ("s8[50]", "s8[]"), "window={size=50 pad=49_0}, to_apply=add", element="s8"),
    _reduced(
        "(f32[5,8], s32[5,8])",
        ("f32[5,8]", "s32[5,8]", "f32[]", "s32[]"),
        "window={size=5x1 pad=4_0x0_0}, to_apply=argmax",
        -1e30,
    ),
    _reduced("s8[4,5]", ("s8[4,5]", "s8[]"), "window={size=3x2 pad=1_1x0_1}, to_apply=add", element="s8"),
]


def _scattered(operand: str, source: str, window: str, initial: float = 0, element: str = "f32") -> StructuredCase:
    operands = (operand, source, f"{element}[]")
    expression = f"{operand} select-and-scatter(@), {window}, select=ge, scatter=add"
    return StructuredCase(expression, operands, element, {2: initial})


SCATTERED = [
    _scattered("f32[2,12,12,8]", "f32[2,6,6,8]", POOL),
    _scattered("f32[5,7]", "f32[3,7]", "window={size=3x3 stride=2x1 pad=1_1x1_1}", 0.5),
    _scattered("s32[9]", "s32[6]", "window={size=4}", element="s32"),
    _scattered("f32[4,0]", "f32[3,0]", "window={size=2x1}"),
]
