"""A constant's value: a read-only NumPy array, a tuple of literals, or elided `{...}`."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Literal:
    """Two literals are equal if shapes and bits are: NaN equals the same NaN, -0.0 differs from 0.0.

    shape: without layout.  array: row-major, `shape.dtype.dtype`, not writable; None for tuples, tokens and where the
    text elided the value.  elements: for tuples.
    """

    shape: Shape
    array: np.ndarray[Any, Any] | None = None
    elements: tuple[Literal, ...] | None = None

    def __post_init__(self) -> None:
        if self.array is not None:
            array = np.ascontiguousarray(self.array).reshape(self.array.shape)
            array.setflags(write=False)
            object.__setattr__(self, "array", array)

    @property
    def is_elided(self) -> bool:
        """Whether the text left out the value, or a part of it."""
        if self.elements is not None:
            return any(element.is_elided for element in self.elements)
        return self.array is None and (self.shape.is_array or self.shape.is_tuple)

    @property
    def leaves(self) -> list[Literal]:
        """The literals that are no tuples, depth first."""
        return [self] if self.elements is None else [leaf for element in self.elements for leaf in element.leaves]

    @staticmethod
    def of(array: Any, shape: Shape) -> Literal:
        """From anything NumPy converts; `shape` gives the element type and the dimension sizes."""
        return Literal(shape.without_layout(), np.array(array, dtype=shape.dtype.dtype).reshape(shape.dims))

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, None if self.array is None else self.array.tobytes(), self.elements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())
