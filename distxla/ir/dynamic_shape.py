"""Shapes with dynamic dimensions, and their forms with other dimension sizes."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.shape import Shape

Agreement = tuple[tuple[int, int], ...]  # (operand, dimension) of the dimensions that must have one size


def is_dynamic(shape: Shape, dimension: int) -> bool:
    """Whether that dimension of an array shape has a size of its own at run time."""
    return bool(shape.dynamic) and shape.dynamic[dimension]


def static_shape(shape: Shape) -> Shape:
    """The shape with every dimension at its bound; tuples recursively; without layouts."""
    if shape.elements is not None:
        return Shape.tuple(tuple(static_shape(e) for e in shape.elements))
    return Shape(shape.element_type, shape.dims)


def marked_where_different(shape: Shape, other: Shape) -> Shape:
    """`shape` with the dimensions marked as dynamic in which `other` has another size."""
    if shape.elements is not None:
        pairs = zip(shape.elements, other.elements or (), strict=True)
        return Shape.tuple(tuple(marked_where_different(mine, theirs) for mine, theirs in pairs))
    flags = tuple(n != m for n, m in zip(shape.dims, other.dims, strict=True))
    return Shape(shape.element_type, shape.dims, flags)


def same_positions(operands: Sequence[Shape]) -> tuple[Agreement, ...]:
    """Agreements of operands that are walked through together: dimension d of each, scalars left out."""
    ranks = [s.rank if s.is_array else 0 for s in operands]
    rank = max(ranks, default=0)
    members = [k for k, r in enumerate(ranks) if r == rank]
    return tuple(tuple((k, d) for k in members) for d in range(rank)) if len(members) > 1 else ()


def with_dimension_sizes(stated: Shape, actual: Shape) -> Shape:
    """The stated shape's types with the dimension sizes of another shape of the same structure, no dimension
    dynamic."""
    if stated.elements is not None:
        return Shape.tuple(
            tuple(with_dimension_sizes(s, a) for s, a in zip(stated.elements, actual.elements or (), strict=True))
        )
    return Shape(stated.element_type, actual.dims)
