"""The answers that are the same for all buffers of a shape."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from distxla.ir.shape import Shape
from distxla.jax.pjrt.element_types import number_of
from distxla.jax.pjrt.handles import CArray


class Constants:
    """The answers that are the same for all buffers of a shape.

    shape: the same object for equal ones.  number: PJRT's, of the element type.  size: in bytes.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.size = shape.byte_size
        self.number = number_of(shape.dtype)
        self.dims = CArray(ctypes.c_int64, shape.dims)
        _by_dims[self.dims.address] = self
        self.minor_to_major = CArray(ctypes.c_int64, list(reversed(range(len(shape.dims)))))


@cache
def constants_of(shape: Shape) -> Constants:
    """Those of the shape; always the same object."""
    return Constants(shape)


_by_dims: Final[dict[int, Constants]] = {}


def constants_at(dims: int) -> Constants:
    """Those of which the array of dimension sizes is at this address."""
    return _by_dims[dims]


__all__ = ["Constants", "constants_at", "constants_of"]
