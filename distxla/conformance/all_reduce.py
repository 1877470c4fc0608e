"""all-reduce: groups, element types, reductions, special values, shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distxla.conformance.case import Case
from distxla.conformance.groups import ALL, ANY_FLAT, BY_NAME, PAIRS, SUBGROUPS, Groups
from distxla.conformance.program_text import Collective, case_of, reduction
from distxla.conformance.values import Values, columns, exact_products, exact_sums, positive, rounding
from distxla.ir.element_type import BF16, COMPLEXES, DATA_TYPES, F16, F32, F64, PRED, ElementType, element_type
from distxla.ir.shape import Shape

Rows = Sequence[Sequence[float]]

DIMS = (2, 3)
# f4e2m1fn and f8e8m0fnu, which have no sign or hardly a number, are only moved
SUMMED = tuple(t for t in DATA_TYPES if t is not PRED and t.name not in ("f8e8m0fnu", "f4e2m1fn"))
HALF_AND_MORE = (F16, BF16, F32, F64)
FLOAT8 = tuple(t for t in SUMMED if t.is_float and t.bits == 8)

# reduction, its values, element types
REDUCTIONS: tuple[tuple[str, Values, tuple[ElementType, ...]], ...] = (
    ("multiply", exact_products, (*HALF_AND_MORE, *COMPLEXES, *map(element_type, ("s8", "u16", "s32", "u64")))),
    ("min", rounding, (*HALF_AND_MORE, *FLOAT8, *map(element_type, ("s4", "u8", "s16", "u32", "s64")))),
    ("max", rounding, (*HALF_AND_MORE, *FLOAT8, *map(element_type, ("u4", "s8", "u16", "s32", "u64")))),
    ("and", rounding, (PRED, *map(element_type, ("s8", "u32", "s64")))),
    ("or", rounding, (PRED, *map(element_type, ("u8", "s32", "u64")))),
    ("xor", rounding, (PRED, *map(element_type, ("s16", "u32")))),
)

_INF, _NAN = float("inf"), float("nan")
_NANS = ((_NAN, 1, 2, 3), (1, 2, _NAN, -3), (1, 2, 3, 4))
_INFINITIES = ((_INF, 1, 2, 3), (1, -_INF, 2, 3), (_INF, 1, 2, _INF), (1, 2, 3, 4))
_OPPOSED = ((_INF, -_INF, 1, 2), (1, -_INF, 2, _INF), (0, 1, 2, 3))
_ZEROS = ((-0.0, -0.0, -0.0, -0.0), (-0.0, 0.0, -0.0, -0.0), (0.0, -0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0))
# name, reductions, element i on device d
SPECIAL: tuple[tuple[str, tuple[str, ...], Rows], ...] = (
    ("nan", ("add", "multiply", "min", "max"), _NANS),
    ("infinity", ("add", "multiply", "min", "max"), _INFINITIES),
    ("opposed-infinities", ("add", "min", "max"), _OPPOSED),
    ("signed-zeros", ("add", "multiply", "min", "max"), _ZEROS),
)

# name, operands
SHAPES = (
    ("rank-0", (Shape(F32),)),
    ("empty", (Shape(F32, (0, 3)),)),
    ("one-element", (Shape(F32, (1,)),)),
    ("rank-5", (Shape(F32, (2, 1, 3, 2, 2)),)),
    ("large", (Shape(F32, (40_001,)),)),
    ("variadic", (Shape(F32, (2, 3)), Shape(F32), Shape(F32, (5,)))),
    ("variadic-empty", (Shape(F32, (2,)), Shape(F32, (0,)), Shape(F32, (3,)))),
)


def of(groups: Groups, reduced_by: str, *operands: Shape) -> Collective:
    """The all-reduce of some operands of one element type."""
    attributes = f"{groups.attributes}, to_apply=combine"
    return Collective("all-reduce", operands, operands, attributes, reduction(reduced_by, operands[0].dtype))


def cases() -> Iterator[Case]:
    """All of this file."""
    for groups in ANY_FLAT:
        yield _case(groups, F32, "add", exact_sums)
    for kind in SUMMED:
        if kind is not F32:
            yield _case(ALL, kind, "add", exact_sums)
    for name, values, kinds in REDUCTIONS:
        for kind in kinds:
            yield _case(SUBGROUPS if kind is BF16 else ALL, kind, name, values)
    yield from _rounded()
    yield from _special()
    for name, operands in SHAPES:
        yield case_of(f"all-reduce/all/f32/{name}", ALL, of(ALL, "add", *operands), exact_sums)


def _case(groups: Groups, kind: ElementType, reduced_by: str, values: Values) -> Case:
    name = f"all-reduce/{groups.name}/{kind}/{reduced_by}"
    return case_of(name, groups, of(groups, reduced_by, Shape(kind, DIMS)), values)


def _rounded() -> Iterator[Case]:
    """Two members: one rounding, to the nearest, the same in any order. More: within a tolerance."""
    shape = (4, 16)
    for kind in (*HALF_AND_MORE, *(t for t in FLOAT8 if t.name in ("f8e5m2", "f8e4m3fn"))):
        name = f"all-reduce/pairs/{kind}/add-rounded"
        yield case_of(name, PAIRS, of(PAIRS, "add", Shape(kind, shape)), rounding)
    for kind in (F16, BF16):
        name = f"all-reduce/pairs/{kind}/add-in-f32"
        yield case_of(name, PAIRS, of(PAIRS, "add-in-f32", Shape(kind, shape)), rounding)
    for kind in (*HALF_AND_MORE, *COMPLEXES):
        for groups in (ALL, BY_NAME["eight"]):
            name = f"all-reduce/{groups.name}/{kind}/add-any-order"
            yield case_of(name, groups, of(groups, "add", Shape(kind, shape)), positive, any_order=True)
    for kind in (F32, F64):
        name = f"all-reduce/all/{kind}/multiply-any-order"
        yield case_of(name, ALL, of(ALL, "multiply", Shape(kind, shape)), positive, any_order=True)


def _special() -> Iterator[Case]:
    for what, reductions, rows in SPECIAL:
        for kind in HALF_AND_MORE:
            for name in reductions:
                shape = Shape(kind, (len(rows),))
                yield case_of(f"all-reduce/all/{kind}/{name}-{what}", ALL, of(ALL, name, shape), columns(rows))
    for kind in HALF_AND_MORE:
        shape = Shape(kind, (3,))
        for what, rows in _at_the_limits(kind):
            yield case_of(f"all-reduce/all/{kind}/add-{what}", ALL, of(ALL, "add", shape), columns(rows))


def _at_the_limits(kind: ElementType) -> tuple[tuple[str, Rows], ...]:
    least, most = _limits(kind)
    return (
        ("subnormal", ((least, least, least, least), (least, 0, -least, least), (0, 0, 0, -least))),
        ("overflow", ((most, most, 0, 0), (0, -most, -most, 0), (most, 0, 0, 0))),
    )


def _limits(kind: ElementType) -> tuple[float, float]:
    """The smallest positive and the largest finite number."""
    width = f"uint{kind.bits}"
    infinity = np.array(_INF).astype(kind.dtype).view(width)
    largest = (infinity - np.array(1, width)).astype(width)
    return float(np.array(1, width).view(kind.dtype)), float(largest.view(kind.dtype))
