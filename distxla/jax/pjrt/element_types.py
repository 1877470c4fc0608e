"""PJRT's numbers of element types."""

from __future__ import annotations

from typing import Final

from distxla.errors import UnsupportedOpError
from distxla.ir.element_type import ElementType, element_type

_TEXT: Final = """
pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz
s4 u4 token s2 u2 f8e4m3 f8e3m4 f8e8m0fnu f4e2m1fn s1 u1 f6e2m3fn f6e3m2fn
"""
_NAMES: Final = _TEXT.split()
_NUMBERS: Final = {name: number for number, name in enumerate(_NAMES, 1)}


def number_of(found: ElementType) -> int:
    """PJRT's number of an element type."""
    return _NUMBERS[found.name]


def element_type_of_number(number: int) -> ElementType:
    """UnsupportedOpError for types that distxla lacks."""
    name = _NAMES[number - 1] if 1 <= number <= len(_NAMES) else str(number)
    try:
        return element_type(name)
    except KeyError:
        raise UnsupportedOpError(f"element type {name}: distxla has no such type") from None


__all__ = ["element_type_of_number", "number_of"]
