"""reduce-scatter: groups, element types, reductions, shapes."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.conformance.all_reduce import REDUCTIONS, SUMMED
from distxla.conformance.case import Case
from distxla.conformance.groups import ALL, EVEN_FLAT, PAIRS, SUBGROUPS, Groups
from distxla.conformance.program_text import Collective, case_of, reduction
from distxla.conformance.values import exact_sums, positive, rounding
from distxla.ir.element_type import BF16, F16, F32, F64
from distxla.ir.shape import Shape

# what a case is called, result's sizes, the dimension
SHAPES = (
    ("dimension-1", (3, 2), 1),
    ("middle-dimension", (2, 3, 2), 1),
    ("rank-1", (3,), 0),
    ("one-element", (1,), 0),
    ("empty", (0, 3), 0),
    ("empty-elsewhere", (2, 0), 0),
    ("large", (10_007,), 0),
)


def of(groups: Groups, reduced_by: str, dimension: int, *results: Shape) -> Collective:
    """The reduce-scatter with these results."""
    operands = tuple(
        Shape(s.element_type, tuple(n * groups.size if d == dimension else n for d, n in enumerate(s.dims)))
        for s in results
    )
    attributes = f"{groups.attributes}, dimensions={{{dimension}}}, to_apply=combine"
    return Collective("reduce-scatter", operands, results, attributes, reduction(reduced_by, results[0].dtype))


def cases() -> Iterator[Case]:
    """All of this file."""
    for groups in EVEN_FLAT:
        collective = of(groups, "add", 0, Shape(F32, (2, 3)))
        yield case_of(f"reduce-scatter/{groups.name}/f32/add", groups, collective, exact_sums)
    for kind in SUMMED:
        if kind is not F32:
            yield case_of(f"reduce-scatter/all/{kind}/add", ALL, of(ALL, "add", 0, Shape(kind, (2, 3))), exact_sums)
    for name, values, kinds in REDUCTIONS:
        for kind in kinds[:2]:
            collective = of(SUBGROUPS, name, 1, Shape(kind, (2, 3)))
            yield case_of(f"reduce-scatter/subgroups/{kind}/{name}", SUBGROUPS, collective, values)
    for kind in (F16, BF16, F32, F64):
        collective = of(PAIRS, "add", 0, Shape(kind, (2, 16)))
        yield case_of(f"reduce-scatter/pairs/{kind}/add-rounded", PAIRS, collective, rounding)
        collective = of(ALL, "add", 0, Shape(kind, (2, 16)))
        yield case_of(f"reduce-scatter/all/{kind}/add-any-order", ALL, collective, positive, any_order=True)
    for what, dims, dimension in SHAPES:
        collective = of(SUBGROUPS, "add", dimension, Shape(F32, dims))
        yield case_of(f"reduce-scatter/subgroups/f32/{what}", SUBGROUPS, collective, exact_sums)
    variadic = of(ALL, "add", 0, Shape(F32, (2, 3)), Shape(F32, (1,)))
    yield case_of("reduce-scatter/all/f32/variadic", ALL, variadic, exact_sums)
