"""The places of an array's elements in its buffer, by its shape's layout: the index arithmetic of both directions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from distxla.ir.layout import Layout
from distxla.ir.shape import Shape


def linear_index(shape: Shape, index: Sequence[int]) -> int:
    """The place in its buffer of the element at a multidimensional index, in elements.

    Negative numbers count from a dimension's end, as in Python.  IndexError where there is no such element.
    """
    if len(index) != shape.rank:
        raise IndexError(f"{list(index)} has not one number for each dimension of {shape}")
    place = 0
    for i, size, stride in zip(index, shape.dims, _layout(shape).strides(shape.dims), strict=True):
        if not -size <= i < size:
            raise IndexError(f"{list(index)} is out of bounds of {shape}")
        place += (i + size if i < 0 else i) * stride
    return place


def multidimensional_index(shape: Shape, linear: int) -> tuple[int, ...]:
    """The index, one number a dimension, of the element at a place of the array's buffer.

    In padding some of them are not below the shape's dimension sizes.  IndexError beyond the buffer.
    """
    layout = _layout(shape)
    widths = layout.widths(shape.dims)
    if not 0 <= linear < prod(widths):
        raise IndexError(f"there is no place {linear} in the buffer of {shape}, which has {prod(widths)} elements")
    index = [0] * shape.rank
    for dimension in layout.minor_to_major:
        linear, index[dimension] = divmod(linear, widths[dimension])
    return tuple(index)


def _layout(shape: Shape) -> Layout:
    return shape.layout or Layout.default(shape.rank)
