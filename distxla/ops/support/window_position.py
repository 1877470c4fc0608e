"""The place of a window's element in the array under it: the arithmetic that all windowed ops share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ir.window import Window, WindowDimension
from distxla.ops.support.emit import Emitter, Index, IndexLike, Value

Array = np.ndarray[Any, Any]


def check_window(
    op: Op, window: Window, array: Shape, *, rank: str, positive: tuple[str, str, str, str]
) -> tuple[int, ...]:
    """The number of windows along each dimension of `array`.

    Requires (rule `rank`) a window of the array's rank and (rules `positive`: of sizes, strides, base dilations, window
    dilations) numbers of at least 1.
    """
    op.require(
        window.rank == array.rank,
        rank,
        f"the window has {window.rank} dimensions, {array} has {array.rank}",
        at="window",
    )
    check_positive(op, window, positive)
    return tuple(w.output_size(dimension_size) for w, dimension_size in zip(window.dimensions, array.dims))


def check_positive(op: Op, window: Window, rules: tuple[str, str, str, str]) -> None:
    """Require sizes, strides, base and window dilations of at least 1."""
    for number, dimension in enumerate(window.dimensions):
        found = {
            "size": dimension.size,
            "stride": dimension.stride,
            "lhs_dilate": dimension.base_dilation,
            "rhs_dilate": dimension.window_dilation,
        }
        for rule, (what, value) in zip(rules, found.items()):
            op.require(value >= 1, rule, f"{what} of window dimension {number} is {value}", at="window")


def array_positions(
    window: Window, place: Sequence[int], windows: Sequence[int], dims: Sequence[int]
) -> tuple[tuple[Array, ...], Array]:
    """For one place in the window: its position in the array for all windows, and whether it is an element there.

    windows: number of windows a dimension.  Returns index arrays, clamped into the array, that together broadcast to
    `windows`, and a boolean array of exactly that shape.
    """
    positions, inside = [], np.ones(tuple(windows), bool)
    for axis, dimension in enumerate(window.dimensions):
        offset = place[axis] * dimension.window_dilation - dimension.padding_low
        dilated = np.arange(windows[axis]) * dimension.stride + offset
        position, remainder = dilated // dimension.base_dilation, dilated % dimension.base_dilation
        along = [1] * window.rank
        along[axis] = windows[axis]
        inside = inside & ((remainder == 0) & (position >= 0) & (position < dims[axis])).reshape(along)
        positions.append(np.clip(position, 0, max(0, dims[axis] - 1)).reshape(along))
    if any(dimension_size == 0 for dimension_size in dims):
        inside = np.zeros(tuple(windows), bool)
    return tuple(positions), inside


def emit_position(
    emit: Emitter, window: Window, place: Index, index: Index, dims: Sequence[int], windows: Sequence[int]
) -> tuple[list[IndexLike], Value | None]:
    """The element under `place` of the window `index`: a position that is safe to load, and whether it is meant.

    None instead of a predicate: it always is.
    """
    position: list[IndexLike] = []
    predicate: Value | None = None
    for axis, dimension in enumerate(window.dimensions):
        found, inside = emit_axis(emit, dimension, place[axis], index[axis], dims[axis], windows[axis])
        position.append(found)
        predicate = both(emit, predicate, inside)
    return position, predicate


def both(emit: Emitter, a: Value | None, b: Value | None) -> Value | None:
    """`and` of predicates where None is true."""
    if a is None or b is None:
        return b if a is None else a
    return emit.binary("and", a, b)


def emit_axis(
    emit: Emitter, dimension: WindowDimension, place: IndexLike, index: IndexLike, dimension_size: int, windows: int
) -> tuple[IndexLike, Value | None]:
    """`emit_position` along one dimension of `size` elements (at least 1) and `windows` windows."""
    start = index * dimension.stride - dimension.padding_low
    dilated = start + place * dimension.window_dilation
    last = (windows - 1) * dimension.stride - dimension.padding_low + (dimension.size - 1) * dimension.window_dilation
    base = dimension.base_dilation
    if base == 1:
        if dimension.padding_low <= 0 and last < dimension_size:
            return dilated, None
        inside = _within(emit, dilated, dimension_size, low=dimension.padding_low > 0, high=last >= dimension_size)
        return emit.index_clamp(0, dilated, dimension_size - 1), inside
    # Division is defined for non-negative numbers, so the position is clamped before it is divided.
    clamped = emit.index_clamp(0, dilated, (dimension_size - 1) * base)
    meant = emit.index_compare("EQ", clamped, dilated)
    return clamped // base, emit.binary("and", meant, emit.index_compare("EQ", clamped % base, 0))


def _within(emit: Emitter, position: IndexLike, dimension_size: int, *, low: bool, high: bool) -> Value:
    """Whether 0 <= position < size, without the side that can't fail."""
    if not high:
        return emit.index_compare("GE", position, 0)
    below = emit.index_compare("LT", position, dimension_size)
    if not low:
        return below
    return emit.binary("and", emit.index_compare("GE", position, 0), below)
