"""Remembers which dimensions of the reference's arrays are dynamic.

An array as large as its bounds does not show it.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from distxla.ir.dynamic_shape import static_shape
from distxla.ir.shape import Shape
from distxla.oracle.waits import Pending

Array = np.ndarray[Any, Any]
Flags = tuple[bool, ...]


class DynamicValues:
    """Dynamic dimensions of one device's arrays, by the arrays' identity, as long as they live."""

    def __init__(self) -> None:
        self._flags: dict[int, tuple[weakref.ref[Array], Flags]] = {}

    def shape(self, value: Any, stated: Shape) -> Shape:
        """The stated shape with the dimensions marked that are dynamic in this value."""
        if isinstance(value, Pending):
            return stated
        if stated.elements is not None:
            return Shape.tuple(tuple(self.shape(v, s) for v, s in zip(value, stated.elements, strict=True)))
        if not stated.is_array:
            return stated
        found = self._flags.get(id(value))
        return Shape(stated.element_type, stated.dims, found[1] if found else ())

    def note(self, value: Any, shape: Shape) -> Any:
        """Remember the dynamic dimensions that `shape` marks; the value, whose arrays may be new views."""
        if isinstance(value, Pending):
            return value
        if shape.elements is not None:
            return tuple(self.note(v, s) for v, s in zip(value, shape.elements, strict=True))
        if not shape.is_array:
            return value
        known = self._flags.get(id(value))
        if (known[1] if known else ()) == shape.dynamic:
            return value
        array: Array = np.asarray(value)[...]
        if shape.dynamic:
            key = id(array)
            self._flags[key] = (weakref.ref(array, lambda _: self._flags.pop(key, None)), shape.dynamic)
        return array


def is_smaller_than_stated(value: Any, shape: Shape) -> bool:
    """Whether an array of the value has fewer elements than its shape states."""
    if isinstance(value, Pending):
        return False
    if shape.elements is not None:
        return any(is_smaller_than_stated(v, s) for v, s in zip(value, shape.elements, strict=True))
    return shape.is_array and value.shape != static_shape(shape).dims
