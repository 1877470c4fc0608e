"""The order of an array's elements in memory: spec page "Shapes and Layout".

Inside of a program all arrays are row-major; a layout says where elements are in buffers that come from elsewhere or
go there: `Layout.pack` and `Layout.unpack`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from distxla.ir.element_type import element_type_of
from distxla.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]

# Values of padding; of `unknown` ones no reader may depend on the value, which is written as zero.
PADDING_VALUES: Final = ("zero", "one", "lowest", "highest", "unknown")


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of an array's elements in memory: `{minor_to_major:T(tile)...S(space)E(bits)...}`.

    minor_to_major: dimension numbers, fastest first.  tiles: each a tuple of sizes, `*` written as -1.
    memory_space: `S(n)`, 0 the default.  element_bits: `E(n)`, 0 where not given.
    other: the further parts of XLA's layout text in their order, as (letter(s), text in parentheses), kept verbatim:
    D, L, #, *, P, SC, M.
    padded_dimensions: the width to which each dimension is padded, behind its elements; () where there is no padding.
    padding_value: one of PADDING_VALUES. Both belong to the form of layouts before tiles and have no text.
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_bits: int = 0
    other: tuple[tuple[str, str], ...] = ()
    padded_dimensions: tuple[int, ...] = ()
    padding_value: str = "zero"

    def __post_init__(self) -> None:
        if self.padded_dimensions and len(self.padded_dimensions) != len(self.minor_to_major):
            raise ValueError(
                f"padded_dimensions={list(self.padded_dimensions)} of a layout of {len(self.minor_to_major)} dimensions"
            )
        if self.padding_value not in PADDING_VALUES:
            raise ValueError(f"padding_value={self.padding_value!r} is none of {', '.join(PADDING_VALUES)}")

    @staticmethod
    def default(rank: int) -> Layout:
        """Row-major: the last dimension is the fastest."""
        return Layout(tuple(range(rank - 1, -1, -1)))

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        """Dimension numbers, slowest first: the order in which a row-major buffer has them."""
        return self.minor_to_major[::-1]

    def widths(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The dimension sizes with their padding, by dimension number; ValueError where no such array has this
        layout."""
        if sorted(self.minor_to_major) != list(range(len(dims))):
            raise ValueError(f"minor_to_major={list(self.minor_to_major)} is no order of {len(dims)} dimensions")
        if self.tiles:
            raise ValueError("this version knows no place of elements in tiles")
        widths = self.padded_dimensions or tuple(dims)
        if any(width < size for width, size in zip(widths, dims, strict=True)):
            raise ValueError(f"padded_dimensions={list(widths)} are less than the dimension sizes {list(dims)}")
        return widths

    def strides(self, dims: Sequence[int]) -> tuple[int, ...]:
        """By dimension number, how many elements of the buffer two neighbours along it are apart."""
        widths, strides, step = self.widths(dims), [0] * len(dims), 1
        for dimension in self.minor_to_major:
            strides[dimension] = step
            step *= widths[dimension]
        return tuple(strides)

    def pack(self, array: Any) -> Array:
        """The one-dimensional buffer with an array in this layout, padding included.

        array: logical, whatever its strides.  An element of less than a byte takes one byte.
        """
        array = np.asarray(array)
        widths = self.widths(array.shape)
        if widths != array.shape:
            padded = np.full(widths, _padding(self.padding_value, array.dtype), array.dtype)
            padded[tuple(slice(size) for size in array.shape)] = array
            array = padded
        return np.ascontiguousarray(array.transpose(self.major_to_minor)).reshape(-1)

    def unpack(self, buffer: Any, dims: Sequence[int]) -> Array:
        """The logical array of dimension sizes `dims` that is in a buffer: a view of it. ValueError for a buffer of
        another size."""
        buffer, widths = np.asarray(buffer), self.widths(dims)
        if buffer.shape != (prod(widths),):
            raise ValueError(f"a buffer of {list(buffer.shape)} elements, not of {prod(widths)}, for {list(dims)}")
        physical = buffer.reshape([widths[d] for d in self.major_to_minor])
        logical: Any = physical.transpose(np.argsort(self.major_to_minor)) if widths else physical
        result: Array = logical[(*(slice(size) for size in dims), ...)]
        return result


def _padding(value: str, dtype: np.dtype[Any]) -> Any:
    if value in ("zero", "one", "unknown"):
        return dtype.type(value == "one")
    element_type = element_type_of(dtype)
    try:
        return element_type.lowest if value == "lowest" else element_type.highest
    except TypeError:
        raise ValueError(f"complex numbers have no {value} one") from None
