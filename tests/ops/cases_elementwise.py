"""Cases of the element-wise ops: every opcode over every element type that it takes."""

from __future__ import annotations

from distxla.ir.element_type import (
    C64,
    DATA_TYPES,
    F4E2M1FN,
    F8E8M0FNU,
    F32,
    FLOATS,
    INTEGERS,
    S32,
    ElementType,
)
from distxla.ir.shape import Shape
from distxla.ops import elementwise_binary, elementwise_unary
from tests.ops.case import Case, array

# f4 and f8e8m0 hold too few values for arithmetic cases to mean anything: conversions cover them.
STORAGE_ONLY = (F4E2M1FN, F8E8M0FNU)


def _is_tested(element: ElementType) -> bool:
    return element not in STORAGE_ONLY


UNARY = [
    Case(row.opcode, (Shape(element, (67,)),))
    for row in elementwise_unary.ROWS
    for element in row.domain
    if _is_tested(element)
]

BINARY = [
    Case(row.opcode, (Shape(element, (131,)), Shape(element, (131,))))
    for row in elementwise_binary.ROWS
    for element in row.domain
    if _is_tested(element)
]

SIZES = [
    Case("add", (array("f32", *dims), array("f32", *dims)))
    for dims in ((), (0,), (1,), (3, 0, 5), (2, 3, 5), (7, 1, 1, 11))
] + [Case("exponential", (array("f32", *dims),)) for dims in ((), (0, 4), (13, 17))]

COMPARISONS = [
    Case("compare", (Shape(element, (97,)), Shape(element, (97,))), {"direction": direction})
    for element in DATA_TYPES
    for direction in ("EQ", "NE", "LT", "LE", "GT", "GE")
    if _is_tested(element) and (not element.is_complex or direction in ("EQ", "NE"))
] + [
    Case(
        "compare", (Shape(element, (97,)), Shape(element, (97,))), {"direction": direction, "comparison": "TOTALORDER"}
    )
    for element in FLOATS
    for direction in ("EQ", "LT", "GE")
    if _is_tested(element)
]

SELECTIONS = [
    Case("select", (array("pred", *predicate), Shape(element, dims), Shape(element, dims)))
    for element in (F32, C64, S32)
    for predicate, dims in (((3, 5), (3, 5)), ((), (3, 5)), ((), ()), ((0,), (0,)))
] + [
    Case("clamp", (Shape(element, low), Shape(element, (41,)), Shape(element, high)))
    for element in (*FLOATS, *INTEGERS)
    for low, high in (((41,), (41,)), ((), ()))
    if _is_tested(element)
]

CONVERSIONS = [
    Case("convert", (Shape(old, (73,)),), result=Shape(new, (73,)))
    for old in DATA_TYPES
    for new in DATA_TYPES
    if _is_tested(old) and _is_tested(new) and not (old.is_complex and new.kind == "pred")
]

BITCASTS = [
    Case("bitcast-convert", (array(old, *dims),), result=array(new, *to))
    for old, dims, new, to in (
        ("f32", (3, 5), "s32", (3, 5)),
        ("f32", (3,), "u8", (3, 4)),
        ("u8", (3, 4), "f32", (3,)),
        ("u16", (2, 4), "f64", (2,)),
        ("f64", (), "u16", (4,)),
        ("bf16", (7,), "f16", (7,)),
        ("s64", (0, 2), "u32", (0, 2, 2)),
        ("s4", (5,), "u4", (5,)),
        ("s4", (5, 2), "u8", (5,)),
        ("u8", (5,), "s4", (5, 2)),
        ("u16", (3,), "u2", (3, 8)),
        ("pred", (3,), "u8", (3,)),
    )
]

PRECISIONS = [
    Case("reduce-precision", (Shape(element, (61,)),), {"exponent_bits": e, "mantissa_bits": m})
    for element in FLOATS
    if element.bits >= 16
    for e, m in ((5, 10), (8, 7), (4, 3), (2, 0), (11, 52), (8, 23), (3, 30))
]

STOCHASTIC = [
    Case("stochastic-convert", (array(old, 50), array(random, 50)), result=array(new, 50))
    for old, random, new in (("f32", "u32", "s8"), ("f16", "u16", "s32"), ("f64", "u64", "s16"), ("bf16", "u16", "u8"))
]

IOTAS = [
    Case("iota", (), {"iota_dimension": dimension}, result=Shape(element, dims))
    for element in DATA_TYPES
    if element.kind != "pred" and _is_tested(element)
    for dims, dimension in (((3, 20), 1), ((7,), 0), ((0, 2), 0))
]

# What matrix.py has not: shapes of several dimensions, scalar operands beside arrays.
SHAPED = [*SIZES, *SELECTIONS, *BITCASTS]

CASES = [
    *UNARY,
    *BINARY,
    *COMPARISONS,
    *CONVERSIONS,
    *PRECISIONS,
    *STOCHASTIC,
    *IOTAS,
    *SHAPED,
]
