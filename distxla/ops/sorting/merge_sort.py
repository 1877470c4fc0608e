"""Merge sort by any comparator, in emitted code and in NumPy: the same comparisons, so the same order.

Runs of doubling length are merged, from the front or from both ends. Where the comparator is a strict weak order the
result is the one stable order. Where it contradicts itself (`<` of floats with NaNs among them, or nonsense) each merge
still takes every element of its two runs once, and the order depends on which elements are compared. So both executors
must make the same comparisons: a change here is a change of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import S64
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value

Before = Callable[[Sequence[Any], Sequence[Any]], Any]
BOTH_ENDS = 32  # elements of a run from which on merging from both ends pays for its code

# --- emitted code ----------------------------------------------------------------------------------------------------


def emit_merge_sort(
    emit: KernelEmitter, source: Sequence[Buffer], target: Sequence[Buffer], before: Before
) -> Sequence[Buffer]:
    """Sort the lines in `source` together, `target` being room for them; returns which of the two holds the result.

    before: whether the first argument's elements, one of each line, come before the second's.
    """
    size = source[0].shape.dims[0]
    width = 1
    while width < size:
        pairs, rest = divmod(size, 2 * width)
        with emit.loops((pairs,)) as (pair,):
            merge = emit_merge_from_both_ends if width >= BOTH_ENDS else emit_merge
            merge(emit, source, target, pair * (2 * width), (width, width), before)
        start = pairs * 2 * width
        if rest > width:
            emit_merge(emit, source, target, start, (width, rest - width), before)
        elif rest:
            with emit.loops((rest,)) as (i,):
                for to, of in zip(target, source):
                    to.store((i + start,), of.load((i + start,)))
        source, target = target, source
        width *= 2
    return source


def emit_merge_from_both_ends(
    emit: KernelEmitter,
    source: Sequence[Buffer],
    target: Sequence[Buffer],
    start: IndexLike,
    lengths: tuple[IndexLike, IndexLike],
    before: Before,
    most: int | None = None,
) -> None:
    """Merge two neighbouring sorted runs of equal lengths: the front half from the front, the other from the back.

    Neither half can run out of elements, and the two don't wait for each other. They meet unless the comparator
    contradicts itself: then elements would be lost, and the runs are merged from the front alone. most: as of
    `emit_merge`.
    """
    width, zero = lengths[0], emit.constant(0, S64)

    def step(index: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        front, back = (emit.index_of(c) for c in carried)
        ours, theirs = (
            [s.load((start + at,)) for s in source] for at in (front, index[0] - front + width)
        )  # fmt: skip
        right = before(theirs, ours)
        for to, our, their in zip(target, ours, theirs):
            to.store((start + index[0],), emit.select(right, their, our))
        # From the back: the first run's elements are taken where the second run's come before them.
        last, end = width - 1 - (index[0] - back), width * 2 - 1
        ours, theirs = ([s.load((start + at,)) for s in source] for at in (last, end - back))
        left = before(theirs, ours)
        for to, our, their in zip(target, ours, theirs):
            to.store((start + end - index[0],), emit.select(left, our, their))
        return (
            emit.value_of(emit.index_select(right, front, front + 1), S64),
            emit.value_of(emit.index_select(left, back, back + 1), S64),
        )

    taken, from_back = _steps(emit, width, most, (zero, zero), step)
    with emit.when(emit.index_compare("NE", emit.index_of(taken), emit.index_of(from_back))):
        emit_merge(emit, source, target, start, lengths, before, most)


def emit_merge(
    emit: KernelEmitter,
    source: Sequence[Buffer],
    target: Sequence[Buffer],
    start: IndexLike,
    lengths: tuple[IndexLike, IndexLike],
    before: Before,
    most: int | None = None,
) -> None:
    """Merge two neighbouring sorted runs; of equal elements those of the first run come first.

    most: a bound of their elements where their lengths are known at run time only.
    """
    first, second = lengths

    def step(index: Index, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        taken = emit.index_of(carried[0])
        left, right = emit.index_clamp(0, taken, first - 1), emit.index_clamp(0, index[0] - taken, second - 1)
        ours = [s.load((start + left,)) for s in source]
        theirs = [s.load((start + first + right,)) for s in source]
        # The second run's element is next where it comes before the first run's, or that run is at its end.
        left_over = emit.index_compare("LT", index[0] - taken, second)
        at_end = emit.index_compare("GE", taken, first)
        next_right = emit.binary("or", at_end, emit.binary("and", left_over, before(theirs, ours)))
        for to, our, their in zip(target, ours, theirs):
            to.store((start + index[0],), emit.select(next_right, their, our))
        return (emit.value_of(emit.index_select(next_right, taken, taken + 1), S64),)

    _steps(emit, first + second, most, (emit.constant(0, S64),), step)


def _steps(
    emit: KernelEmitter,
    count: IndexLike,
    most: int | None,
    initial: tuple[Value, ...],
    step: Callable[[Index, tuple[Value, ...]], tuple[Value, ...]],
) -> tuple[Value, ...]:
    """A fold of `count` steps, at most `most` where that is known at run time only."""
    if isinstance(count, int):
        return emit.fold((count,), initial, step)
    assert most is not None
    return emit.steps(count, most, initial, lambda number, carried: step((number,), carried))


# --- NumPy -----------------------------------------------------------------------------------------------------------

# Whether elements come before others: (lines, places, lines, places) of arrays of one shape -> pred of that shape.
Compare = Callable[[Any, Any, Any], Any]


def merge_sorted(count: int, size: int, before: Compare) -> Any:
    """For every place of `count` lines of `size` elements the place of the element that belongs there.

    before: (lines, places, others): whether in each of the lines the element at a place comes before that at another;
    arrays of one size.
    """
    order = np.broadcast_to(np.arange(size), (count, size)).copy()
    width = 1
    while width < size:
        merged = order.copy()
        pairs, rest = divmod(size, 2 * width)
        if pairs:
            runs = order[:, : pairs * 2 * width].reshape(count * pairs, 2 * width)
            merge = _Merge(np.repeat(np.arange(count), pairs), runs[:, :width], runs[:, width:], before)
            merged[:, : pairs * 2 * width] = merge.merged(both_ends=width >= BOTH_ENDS).reshape(count, -1)
        if rest > width:
            start = pairs * 2 * width
            merge = _Merge(np.arange(count), order[:, start : start + width], order[:, start + width :], before)
            merged[:, start:] = merge.merged(both_ends=False)
        order, width = merged, 2 * width
    return order


class _Merge:
    """Pairs of neighbouring runs, a pair a row; the elements are places in the line of that row."""

    def __init__(self, lines: Any, first: Any, second: Any, before: Compare) -> None:
        self.lines, self.first, self.second, self.before = lines, first, second, before
        self.rows = np.arange(len(lines))
        self.total = first.shape[1] + second.shape[1]

    def merged(self, *, both_ends: bool) -> Any:
        """All rows at once as halving finds them; one comparison after the other where these contradict each other."""
        takes_second = self._supposed()
        wrong = ~self._agrees(takes_second, both_ends=both_ends)
        if wrong.any():
            some = _Merge(self.lines[wrong], self.first[wrong], self.second[wrong], self.before)
            takes_second[wrong] = some._step_by_step(both_ends=both_ends)
        taken = np.cumsum(takes_second, axis=1)
        ours = np.minimum(np.arange(self.total) - taken, self.first.shape[1] - 1)
        theirs = np.maximum(taken - 1, 0)
        rows = self.rows[:, None]
        return np.where(takes_second, self.second[rows, theirs], self.first[rows, np.maximum(ours, 0)])

    def _second_first(self, ours: Any, theirs: Any) -> Any:
        """Whether element `theirs` of the second run comes before element `ours` of the first, by row."""
        rows = np.broadcast_to(self.rows.reshape(-1, *[1] * (np.ndim(ours) - 1)), np.shape(ours))
        before = self.before(
            self.lines[rows].ravel(), self.second[rows, theirs].ravel(), self.first[rows, ours].ravel()
        )
        return before.reshape(np.shape(ours))

    def _supposed(self) -> Any:
        """Whether each place is taken by the second run, if the runs are sorted: each of the first run's elements lets
        pass those that come before it, of which halving finds the number."""
        first, second = self.first.shape[1], self.second.shape[1]
        ours = np.broadcast_to(np.arange(first), self.first.shape)
        low, high = np.zeros(self.first.shape, np.int64), np.full(self.first.shape, second)
        while (low < high).any():
            middle = np.minimum((low + high) // 2, second - 1)
            passes, searching = self._second_first(ours, middle), low < high
            low, high = np.where(searching & passes, middle + 1, low), np.where(searching & ~passes, middle, high)
        takes_second = np.ones((len(self.rows), self.total), bool)
        np.put_along_axis(takes_second, ours + np.maximum.accumulate(low, axis=1), False, axis=1)
        return takes_second

    def _agrees(self, takes_second: Any, *, both_ends: bool) -> Any:
        """By row, whether every comparison on the way decides as supposed: then one after the other decides so, too."""
        first, second = self.first.shape[1], self.second.shape[1]
        taken = np.cumsum(takes_second, axis=1)
        theirs = taken - takes_second
        ours = np.arange(self.total) - theirs
        front = self.total if not both_ends else first
        compared = (ours < first) & (theirs < second)
        compared[:, front:] = False
        found = self._second_first(np.minimum(ours, first - 1), np.minimum(theirs, second - 1))
        agrees = (~compared | (found == takes_second)).all(axis=1)
        if both_ends:  # the last ones left of both runs, from the back
            last_theirs = taken[:, front:] - 1
            last_ours = np.arange(front, self.total) - taken[:, front:]
            agrees &= (self._second_first(last_ours, last_theirs) != takes_second[:, front:]).all(axis=1)
        return agrees

    def _step_by_step(self, *, both_ends: bool) -> Any:
        """Whether each place is taken by the second run, as emitted code finds out."""
        if not both_ends:
            return self._from_the_front(self.total)
        width = self.first.shape[1]
        result = np.concatenate([self._from_the_front(width), self._from_the_back()], axis=1)
        apart = result.sum(axis=1) != width
        if apart.any():
            some = _Merge(self.lines[apart], self.first[apart], self.second[apart], self.before)
            result[apart] = some._from_the_front(self.total)
        return result

    def _from_the_front(self, count: int) -> Any:
        first, second = self.first.shape[1], self.second.shape[1]
        result = np.zeros((len(self.rows), count), bool)
        theirs = np.zeros(len(self.rows), np.int64)
        for place in range(count):
            ours = place - theirs
            found = self._second_first(np.minimum(ours, first - 1), np.minimum(theirs, second - 1))
            result[:, place] = (ours >= first) | ((theirs < second) & found)
            theirs = theirs + result[:, place]
        return result

    def _from_the_back(self) -> Any:
        """The back half of runs of equal lengths."""
        width = self.first.shape[1]
        result = np.zeros((len(self.rows), width), bool)
        taken = np.zeros(len(self.rows), np.int64)  # of the second run
        for step in range(width):
            result[:, width - 1 - step] = ~self._second_first(width - 1 - (step - taken), width - 1 - taken)
            taken = taken + result[:, width - 1 - step]
        return result


__all__ = ["BOTH_ENDS", "Before", "emit_merge", "emit_merge_from_both_ends", "emit_merge_sort", "merge_sorted"]
