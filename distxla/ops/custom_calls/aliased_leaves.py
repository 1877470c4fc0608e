"""Which arrays of a custom-call's result are at the addresses of arrays of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.shape import Shape


def aliased_leaves(
    aliasing: Sequence[tuple[tuple[int, ...], int, tuple[int, ...]]], result: Shape, operands: Sequence[Shape]
) -> list[tuple[int, int]]:
    """(result, operand) of the leaves, tokens counted, that are at one address."""
    found = []
    for output, operand, index in aliasing:
        pairs = zip(
            _all_leaves(result, output), _all_leaves(Shape.tuple(tuple(operands)), (operand, *index)), strict=True
        )
        found += list(pairs)
    return found


def _all_leaves(shape: Shape, index: Sequence[int]) -> range:
    first = 0
    for k in index:
        assert shape.elements is not None
        first += sum(1 for element in shape.elements[:k] for _ in element.leaves())
        shape = shape.elements[k]
    return range(first, first + sum(1 for _ in shape.leaves()))


def leaf_range(shape: Shape, index: Sequence[int]) -> range:
    """Which of the array leaves of `shape` belong to the part at `index`."""
    first = 0
    for k in index:
        assert shape.elements is not None
        first += sum(leaf.is_array for element in shape.elements[:k] for leaf in element.leaves())
        shape = shape.elements[k]
    return range(first, first + sum(leaf.is_array for leaf in shape.leaves()))


__all__ = ["aliased_leaves", "leaf_range"]
