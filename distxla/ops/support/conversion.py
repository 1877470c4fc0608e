"""XLA's conversions between element types in NumPy, and the types in which narrow ones are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import F4E2M1FN, F32, F64, S8, U8, ElementType, element_type_of

Array = np.ndarray[Any, Any]

# Types without arithmetic of their own; a result is rounded (floats) or wrapped (integers) after every operation.
_COMPUTED_IN = {2: (S8, U8), 4: (S8, U8)}


def computation_type(element_type: ElementType) -> ElementType:
    """Where XLA computes: f32 for floats of 16 bits and less, a byte for s2 s4 u2 u4, the type itself otherwise."""
    if element_type.is_float and element_type.bits < F32.bits:
        return F32
    if element_type.is_integer and element_type.bits in _COMPUTED_IN:
        signed, unsigned = _COMPUTED_IN[element_type.bits]
        return signed if element_type.is_signed else unsigned
    return element_type


def widened(array: Array) -> Array:
    """The same values in their computation type."""
    return array.astype(computation_type(element_type_of(array.dtype)).dtype)


def converted(array: Array, to: ElementType) -> Array:
    """XLA `convert` of every element.

    To pred: unequal to zero. Float to integer: towards zero, saturating, NaN to 0. Integer to integer: modulo 2^bits.
    To float: nearest, ties to even, rounded once; f4e2m1fn has no NaN and takes -0. Complex to anything real: the real
    part.
    """
    array = np.asarray(array)
    source = element_type_of(array.dtype)
    if source is to:
        return array
    with np.errstate(all="ignore"):
        if to.kind == "pred":
            return np.asarray(widened(array) != 0)
        if source.is_complex and not to.is_complex:
            return converted(np.asarray(array.real), to)
        array = widened(array)
        if to.is_integer and source.is_float:
            return _saturated(array, to)
        if to.is_integer:
            return np.asarray(array.astype(np.uint64) if to.bits == 64 else array.astype(np.int64)).astype(to.dtype)
        if to.is_float and to.bits < F32.bits and array.dtype != F32.dtype:
            array = _rounded_to_odd(array)
        result = np.asarray(array.astype(to.dtype))
        return np.where(np.isnan(array), -np.zeros_like(result), result) if to is F4E2M1FN else result


def _rounded_to_odd(array: Array) -> Array:
    """As f32 whose last bit tells whether something was cut off: rounding that to less is rounding `array` itself."""
    exact = array.astype(np.longdouble)
    nearest = exact.astype(np.float32)
    cut = np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
    odd = (cut.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where((nearest == exact) | np.isnan(exact), nearest, odd)


def _saturated(array: Array, to: ElementType) -> Array:
    """Floats of 32 or 64 bits towards zero into the integers of `to`."""
    lowest, highest = integer_range(to)
    # Both bounds + 1 are powers of two or zero, so they are exact floats; `highest` itself need not be one.
    inside = (
        (array > lowest - 1.0) & (array < highest + 1.0)
        if to.bits < 64
        else (array >= lowest) & (array < highest + 1.0)
    )
    exact = np.where(inside, np.trunc(array), 0).astype(np.uint64 if lowest == 0 else np.int64)
    bounded = np.where(inside, exact, np.where(array > 0, highest, np.where(array < 0, lowest, 0)).astype(exact.dtype))
    return np.asarray(bounded.astype(to.dtype))


def kinds(element_types: Sequence[ElementType]) -> str:
    """`a signed integer, a float or complex`: the op pages' name of a set of element types."""
    names = {
        "pred": "pred",
        "signed": "a signed integer",
        "unsigned": "an unsigned integer",
        "float": "a float",
        "complex": "complex",
    }
    found = list(dict.fromkeys(names[t.kind] for t in element_types))
    if names["signed"] in found and names["unsigned"] in found:
        found[found.index(names["signed"])] = "an integer"
        found.remove(names["unsigned"])
    if set(element_types) == {F32, F64}:
        return "f32 or f64"
    return " or ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]


def integer_range(element_type: ElementType) -> tuple[int, int]:
    """The lowest and the highest value of an integer type."""
    if element_type.is_signed:
        return -(1 << (element_type.bits - 1)), (1 << (element_type.bits - 1)) - 1
    return 0, (1 << element_type.bits) - 1
