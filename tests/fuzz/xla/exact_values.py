"""Facts about a random program's values, by which its arithmetic stays exact.

A float's value is a multiple of `step`, at most `bound` away from zero. As long as bound/step fits the significand,
sums and products are exact in every order and with every way to fuse them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import ml_dtypes

from distxla.ir.element_type import ElementType, element_type
from distxla.ops.support.conversion import integer_range

FLOATS = ("f32", "f64", "f16", "bf16")
NARROW = ("f8e4m3fn", "f8e5m2")
SIGNED = ("s32", "s64", "s8", "s16")
UNSIGNED = ("u32", "u8", "u64", "u16")
INTEGERS = SIGNED + UNSIGNED
COMPLEX = ("c64", "c128")
ELEMENTS = (*FLOATS, *NARROW, *INTEGERS, *COMPLEX, "pred")
MARGIN = 4.0  # a complex product, for one, is a sum of two


@dataclass(frozen=True)
class Value:
    """An array of a program. bound, step: of each number, or of each part of a complex one.

    ulps: how far it may be from XLA's, None where its bits must be the same.  uniform: the same on all devices.
    """

    name: str
    element: str
    dims: tuple[int, ...] = ()
    bound: float = 0.0
    step: float = 1.0
    ulps: int | None = None
    uniform: bool = False

    @property
    def is_exact(self) -> bool:
        return self.ulps is None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def shape(self) -> str:
        return shape_text(self.element, self.dims)

    def like(self, name: str, dims: tuple[int, ...]) -> Value:
        """The same numbers in another array."""
        return replace(self, name=name, dims=dims)


def shape_text(element: str, dims: tuple[int, ...]) -> str:
    return f"{element}[{','.join(map(str, dims))}]"


def tuple_text(values: list[Value]) -> str:
    return f"({', '.join(value.shape for value in values)})"


@cache
def _limits(element: str) -> tuple[int, float, float]:
    """Bits of the significand, the largest number, the smallest normal one."""
    found = ml_dtypes.finfo(_part(element).dtype)
    return found.nmant + 1, float(found.max), float(found.smallest_normal)


def _part(element: str) -> ElementType:
    return element_type(element).real_part


def is_inexact_type(element: str) -> bool:
    """Whether numbers of the type are rounded at all."""
    return element in FLOATS or element in NARROW or element in COMPLEX


def fits(element: str, bound: float, step: float) -> bool:
    """Whether all such numbers are of the type, exactly, and sums of a few."""
    if not is_inexact_type(element):
        return True  # integers wrap around
    bits, largest, smallest = _limits(element)
    return bound / step <= 2**bits and bound * MARGIN <= largest and step >= smallest * MARGIN


def integer_bound(element: str, bound: float) -> float:
    """The bound of an integer result that would be `bound` without wrapping around."""
    low, high = integer_range(element_type(element))
    return bound if (low <= -bound and bound <= high) or (low == 0 and 0 <= bound <= high) else float(max(-low, high))
