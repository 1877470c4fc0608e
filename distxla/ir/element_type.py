"""Element types of XLA: width, kind, and how NumPy and files hold one.

In memory an element takes `byte_size` whole bytes; s2, u2, s4, u4, f4e2m1fn and pred take one byte each. Files that
NumPy can't type (bf16, f8*, f4*, s2, s4, u2, u4) hold the bits as unsigned integers of the same storage width.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import ml_dtypes
import numpy as np

from distxla.lazy_dataclass import dataclass

Kind = Literal["pred", "signed", "unsigned", "float", "complex", "token", "opaque"]


@dataclass(frozen=True)
class ElementType:
    """One of XLA's element types. Instances are the module's constants: compare with `is` or `==`."""

    name: str
    kind: Kind
    bits: int
    numpy_name: str | None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"ElementType({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return element_type, (self.name,)

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def is_signed(self) -> bool:
        return self.kind == "signed"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def has_nan(self) -> bool:
        """Whether a value of the type may be NaN, or have a part that is."""
        return self.is_complex or (self.is_float and self.bits > 4)

    @property
    def is_data(self) -> bool:
        """False for token and opaque, which have no bytes."""
        return self.kind not in ("token", "opaque")

    @property
    def byte_size(self) -> int:
        """Bytes of one element in an arena or a NumPy array; 0 for token and opaque."""
        return (self.bits + 7) // 8

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy (or ml_dtypes) type; token and opaque have none."""
        if self.numpy_name is None:
            raise TypeError(f"{self.name} has no NumPy type")
        return np.dtype(getattr(ml_dtypes, self.numpy_name, None) or self.numpy_name)

    @cached_property
    def file_dtype(self) -> np.dtype[Any]:
        """The type in .npz files: `dtype`, or the unsigned integer of the same width that holds its bits."""
        if self.numpy_name is not None and hasattr(ml_dtypes, self.numpy_name):
            return np.dtype(f"uint{8 * self.byte_size}")
        return self.dtype

    @cached_property
    def lowest(self) -> Any:
        """The smallest value, -inf where the type has it: a NumPy scalar. TypeError for types without an order."""
        return self._limit("min", -np.inf)

    @cached_property
    def highest(self) -> Any:
        """The largest value, inf where the type has it: a NumPy scalar. TypeError for types without an order."""
        return self._limit("max", np.inf)

    def _limit(self, which: Literal["min", "max"], infinity: float) -> Any:
        if self.kind == "pred":
            return np.bool_(infinity > 0)
        if self.is_integer:
            return self.dtype.type(getattr(ml_dtypes.iinfo(self.dtype), which))  # type: ignore[no-untyped-call]
        if not self.is_float:
            raise TypeError(f"{self.name} has no order")
        limit = np.array(infinity).astype(self.dtype)
        if not np.isinf(limit):
            limit = np.array(getattr(ml_dtypes.finfo(self.dtype), which)).astype(self.dtype)  # type: ignore[no-untyped-call]
        return limit[()]

    @property
    def real_part(self) -> ElementType:
        """f32 for c64, f64 for c128, itself otherwise."""
        return {"c64": F32, "c128": F64}.get(self.name, self)


PRED = ElementType("pred", "pred", 8, "bool")
S2 = ElementType("s2", "signed", 2, "int2")
S4 = ElementType("s4", "signed", 4, "int4")
S8 = ElementType("s8", "signed", 8, "int8")
S16 = ElementType("s16", "signed", 16, "int16")
S32 = ElementType("s32", "signed", 32, "int32")
S64 = ElementType("s64", "signed", 64, "int64")
U2 = ElementType("u2", "unsigned", 2, "uint2")
U4 = ElementType("u4", "unsigned", 4, "uint4")
U8 = ElementType("u8", "unsigned", 8, "uint8")
U16 = ElementType("u16", "unsigned", 16, "uint16")
U32 = ElementType("u32", "unsigned", 32, "uint32")
U64 = ElementType("u64", "unsigned", 64, "uint64")
F16 = ElementType("f16", "float", 16, "float16")
BF16 = ElementType("bf16", "float", 16, "bfloat16")
F32 = ElementType("f32", "float", 32, "float32")
F64 = ElementType("f64", "float", 64, "float64")
C64 = ElementType("c64", "complex", 64, "complex64")
C128 = ElementType("c128", "complex", 128, "complex128")
F8E5M2 = ElementType("f8e5m2", "float", 8, "float8_e5m2")
F8E4M3 = ElementType("f8e4m3", "float", 8, "float8_e4m3")
F8E4M3FN = ElementType("f8e4m3fn", "float", 8, "float8_e4m3fn")
F8E4M3B11FNUZ = ElementType("f8e4m3b11fnuz", "float", 8, "float8_e4m3b11fnuz")
F8E5M2FNUZ = ElementType("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz")
F8E4M3FNUZ = ElementType("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz")
F8E3M4 = ElementType("f8e3m4", "float", 8, "float8_e3m4")
F8E8M0FNU = ElementType("f8e8m0fnu", "float", 8, "float8_e8m0fnu")
F4E2M1FN = ElementType("f4e2m1fn", "float", 4, "float4_e2m1fn")
TOKEN = ElementType("token", "token", 0, None)
OPAQUE = ElementType("opaque", "opaque", 0, None)

ELEMENT_TYPES: dict[str, ElementType] = {t.name: t for t in list(globals().values()) if isinstance(t, ElementType)}
DATA_TYPES: tuple[ElementType, ...] = tuple(t for t in ELEMENT_TYPES.values() if t.is_data)
FLOATS = tuple(t for t in DATA_TYPES if t.is_float)
INTEGERS = tuple(t for t in DATA_TYPES if t.is_integer)
COMPLEXES = (C64, C128)


def element_type(name: str) -> ElementType:
    """The element type of that name; KeyError if there is none."""
    return ELEMENT_TYPES[name]


def element_type_of(dtype: np.dtype[Any]) -> ElementType:
    """The element type that a NumPy array of `dtype` holds; KeyError if XLA has none."""
    return _BY_DTYPE[np.dtype(dtype)]


def held_number(value: complex, element_type: ElementType) -> np.ndarray[Any, Any]:
    """A Python number as an array of rank 0; floats are rounded.

    ValueError where the type has no such value: numbers out of range or with a fraction for integers, truth for other
    numbers than 0 and 1, complex numbers for real types.
    """
    try:
        array = np.asarray(value, element_type.dtype)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"{value!r} is no {element_type}") from None
    if (element_type.is_integer or element_type is PRED) and array.item() != value:
        raise ValueError(f"{value!r} is no {element_type}")
    return array


_BY_DTYPE = {t.dtype: t for t in DATA_TYPES}
