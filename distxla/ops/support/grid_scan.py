"""Cumulative results along lines by many threads at a time, for targets whose kernels run on a grid.

A line is cut into chunks: threads combine each, the totals of chunks are scanned in the same way, and threads go
through the chunks again, each beginning with what is before it. Elements keep their order, so the computation need only
be associative; the grouping depends on the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.ops.support.emit import Index, IndexLike, KernelEmitter, Value

CHUNK = 32  # elements
SHORT_LINE = 64  # elements at most that one thread goes through
MANY_LINES = 1 << 13  # that keep all threads busy

Values = tuple[Value, ...]


def emit_grid_scan(
    emit: KernelEmitter,
    lines: Sequence[int],
    size: int,
    first: Values,
    elements: Callable[[Index, IndexLike], Values],
    combine: Callable[[Values, Values], Values],
    take: Callable[[Index, IndexLike, Values], None],
) -> None:
    """Combine `first` and the elements 0 to i of each line, for every i < size; size > 0.

    lines: their number along each of some dimensions.  elements: loads those at (line, i).  take: is called with
    (line, i) and the result there.
    """

    def walk(line: Index, start: IndexLike, count: int, before: Values) -> None:
        def step(index: Index, carried: Values) -> Values:
            values = combine(carried, elements(line, start + index[0]))
            take(line, start + index[0], values)
            return values

        emit.fold((count,), before, step)

    if size <= SHORT_LINE or prod(lines) >= MANY_LINES:
        with emit.loops(lines, independent=True) as line:
            walk(line, 0, size, first)
        return
    whole, rest = divmod(size, CHUNK)
    followed = whole if rest else whole - 1  # chunks behind which there are others
    types = [value.element_type for value in first]
    totals = _Parts(emit, types, (*lines, followed))
    with emit.loops((*lines, followed), independent=True) as (*outer, chunk):
        begin = elements(outer, chunk * CHUNK)
        totals.store(
            (*outer, chunk),
            emit.fold((CHUNK - 1,), begin, lambda i, t: combine(t, elements(outer, chunk * CHUNK + i[0] + 1))),
        )
    befores = _Parts(emit, types, (*lines, followed))
    emit_grid_scan(
        emit,
        lines,
        followed,
        first,
        lambda line, i: totals.load((*line, i)),
        combine,
        lambda line, i, values: befores.store((*line, i), values),
    )
    with emit.loops((*lines, whole), independent=True) as (*outer, chunk):
        is_first = emit.index_compare("EQ", chunk, 0)
        before = befores.load((*outer, emit.index_clamp(0, chunk - 1, followed - 1)))
        walk(outer, chunk * CHUNK, CHUNK, tuple(emit.select(is_first, f, b) for f, b in zip(first, before)))
    if rest:
        with emit.loops(lines, independent=True) as line:
            walk(line, whole * CHUNK, rest, befores.load((*line, whole - 1)))


class _Parts:
    """One array for each of several values."""

    def __init__(self, emit: KernelEmitter, types: Sequence[ElementType], dims: tuple[int, ...]) -> None:
        self.arrays = [emit.scratch(Shape(t, dims)) for t in types]

    def load(self, index: Index) -> Values:
        return tuple(array.load(index) for array in self.arrays)

    def store(self, index: Index, values: Values) -> None:
        for array, value in zip(self.arrays, values, strict=True):
            array.store(index, value)


__all__ = ["emit_grid_scan"]
