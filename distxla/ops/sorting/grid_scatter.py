"""Scatters on a grid, in the order of the updates, by many threads at a time.

Updates are sorted by the place that they update, those of one place in their order. The first update of a place then
applies all of them, a thread for each column of the window: a scatter of 8,192 rows is a few launches instead of a
thread's walk through all 8,192.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from distxla.ir.element_type import S64, U32
from distxla.ir.shape import Shape
from distxla.ops.sorting.grid_sort import COUNTED_RUN, emit_grid_key_sort, halved
from distxla.ops.sorting.key_sort import key_words
from distxla.ops.support.emit import Buffer, Index, IndexLike, IndexValue, KernelEmitter, Value
from distxla.ops.support.row_major import reshaped_index

MOST_IN_A_PLACE = 1 << 16  # updates without columns: a single thread may have to apply all of them
Start = Callable[[Index], tuple[list[IndexLike], Value | None]]
Update = Callable[[Index, Index, tuple[Value, ...]], tuple[Value, ...]]


def is_sorted_on_grid(emit: KernelEmitter, updates: Sequence[int], dims: Sequence[int], window: Sequence[int]) -> bool:
    """Whether `emit_sorted_scatter` is to do it. updates: the dimension sizes over which there are some.

    Windows have to be whole or one element along each dimension, so that two of them are the same elements or none.
    """
    count = prod(updates)
    has_columns = any(w > 1 for w in window)
    return (
        emit.tuning.on_grid
        and count > COUNTED_RUN
        and all(w in (1, size) for w, size in zip(window, dims, strict=True))
        and (has_columns or count <= MOST_IN_A_PLACE)
    )


def emit_sorted_scatter(
    emit: KernelEmitter,
    results: Sequence[Buffer],
    updates: Sequence[int],
    columns: Sequence[int],
    start: Start,
    update: Update,
) -> None:
    """Apply all updates to `results`, which hold the operands.

    columns: the results' dimensions that windows cover.  start: where the window of an update begins, and whether it
    is inside.  update: of an update, a column and the results' values there the new values.
    """
    dims, count = results[0].shape.dims, prod(updates)
    places = prod(dims)
    kind = U32 if places < 1 << 32 else S64
    order, targets = (emit.scratch(Shape(t, (count,)), scattered=True) for t in (S64, kind))

    def target(number: IndexLike) -> Value:
        """The linear index of the first element of an update's window; beyond all where it isn't inside."""
        at, inside = start(reshaped_index((number,), (prod(updates),), updates))
        linear: IndexLike = 0
        for index, size in zip(at, dims, strict=True):
            linear = linear * size + index
        return emit.value_of(linear if inside is None else emit.index_select(inside, linear, places), kind)

    def store(to: Index, of: Index) -> None:
        order.store(to, emit.value_of(of[0], S64))
        targets.store(to, target(of[0]))

    words = key_words(emit, lambda index: target(index[0]), kind, "SIGNED", descending=False)
    emit_grid_key_sort(emit, (count,), 0, words, store)
    with emit.loops((count, *(dims[d] for d in columns)), independent=True) as (first, *column):
        place = emit.index_of(targets.load((first,)))
        before = emit.index_of(targets.load((emit.index_clamp(0, first - 1, count - 1),)))
        is_first = emit.binary("or", emit.index_compare("EQ", first, 0), emit.index_compare("NE", before, place))
        with emit.when(emit.binary("and", is_first, emit.index_compare("LT", place, places))):
            _emit_place(emit, results, (order, targets), (first, place), (updates, columns, column), start, update)


def _emit_place(
    emit: KernelEmitter,
    results: Sequence[Buffer],
    sorted_updates: tuple[Buffer, Buffer],
    here: tuple[IndexValue, IndexValue],
    what: tuple[Sequence[int], Sequence[int], Sequence[IndexLike]],
    start: Start,
    update: Update,
) -> None:
    """All updates of one place, in one column."""
    (order, targets), (first, place), (updates, columns, column) = sorted_updates, here, what
    count = prod(updates)

    def number(step: IndexLike) -> Index:
        place = emit.index_of(order.load((emit.index_clamp(0, first + step, count - 1),)))
        return reshaped_index((emit.index_clamp(0, place, count - 1),), (count,), updates)

    def is_here(step: IndexLike) -> Value:
        other = emit.index_of(targets.load((emit.index_clamp(0, first + step, count - 1),)))
        return emit.index_compare("EQ", other, place)

    element, _ = start(number(0))
    for d, index in zip(columns, column, strict=True):
        element[d] = index
    updates_here = halved(emit, count, emit.index_clamp(0, count - first, count), is_here)
    old = tuple(result.load(element) for result in results)
    new = emit.steps(updates_here, count, old, lambda step, values: update(number(step), column, values))
    for result, value in zip(results, new, strict=True):
        result.store(element, value)


__all__ = ["emit_sorted_scatter", "is_sorted_on_grid"]
