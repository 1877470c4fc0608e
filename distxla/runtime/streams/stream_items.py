"""Items of streams as users see them, arrays and tuples of items, to and from their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from distxla.collectives.protocols import stream as streams
from distxla.errors import ArgumentError
from distxla.ir.element_type import element_type_of
from distxla.ir.shape import Shape
from distxla.runtime.streams.stream_ends import Bytes, PackedItem, PostedItem


def pack(value: Any) -> tuple[PackedItem, Shape]:
    """An item's bytes and its shape. ArgumentError for anything but arrays and tuples of items."""
    leaves: list[Any] = []
    shape = _shape(value, leaves)
    raw = [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8) for leaf in leaves]
    return PackedItem(raw, *_layout(shape)), shape


@lru_cache(maxsize=1024)
def _layout(shape: Shape) -> tuple[list[int], int, int]:
    """Where the leaves begin, the payload's bytes, and the type's number."""
    return *streams.places(shape), streams.type_number(shape)


def _shape(value: Any, leaves: list[Any]) -> Shape:
    if isinstance(value, tuple | list):
        return Shape.tuple(tuple(_shape(element, leaves) for element in value))
    array = np.asarray(value)
    try:
        element = element_type_of(array.dtype)
    except (KeyError, TypeError):
        raise ArgumentError(f"an item is made of arrays and tuples; no element type holds {array.dtype}") from None
    leaves.append(array)
    return Shape(element, array.shape)


def unpack(posted: PostedItem, item: Shape) -> Any:
    """The arrays of an item of a known shape, over the payload."""
    return _nested(item, iter(streams.places(item)[0]), posted.payload)


def _nested(shape: Shape, begins: Iterator[int], payload: Bytes) -> Any:
    if shape.elements is not None:
        return tuple(_nested(element, begins, payload) for element in shape.elements)
    begin = next(begins)
    return payload[begin : begin + shape.byte_size].view(shape.dtype.dtype).reshape(shape.dims)


__all__ = ["pack", "unpack"]
