"""The forms in which a caller may write element types, shapes and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from distxla.builder.blame import broken_rule
from distxla.builder.call_site import shown
from distxla.errors import HloSyntaxError
from distxla.ir.element_type import (
    C64,
    ELEMENT_TYPES,
    F32,
    PRED,
    S32,
    ElementType,
    element_type_of,
)
from distxla.ir.literal import Literal
from distxla.ir.shape import UNBOUNDED, Shape
from distxla.ops.support.conversion import integer_range
from distxla.text.shapes import parse_shape

Array = np.ndarray[Any, Any]

# "f32", np.float32, np.dtype("float32"), ElementType
ElementTypeLike: TypeAlias = "ElementType | str | type[Any] | np.dtype[Any]"
# "f32[2,3]{1,0}", "(s32[], f32[2])", Shape, ("f32", (2, 3)), an array, a sequence of these for a tuple
ShapeLike: TypeAlias = "Shape | str | Array | Sequence[Any]"
# the forms of a constant: a number, an array, a list of numbers or of such lists
ConstantLike: TypeAlias = "bool | int | float | complex | np.generic | Array | Sequence[Any]"

_OF_PYTHON = (PRED, S32, F32, C64)


def as_element_type(value: ElementTypeLike, argument: str = "new_element_type") -> ElementType:
    """The element type that `value` names, XLA's names before NumPy's (`u4` has four bits)."""
    if isinstance(value, ElementType):
        return value
    if isinstance(value, str):
        found = ELEMENT_TYPES.get(value.lower())
        if found is not None and found.is_data:
            return found
        if len(value) <= 3:  # NumPy's u4 and f8 are not XLA's
            raise broken_rule(f"element_type: there is no element type {value!r}", argument)
    of_operand = getattr(value, "dtype", None)
    if isinstance(of_operand, ElementType):
        return of_operand
    try:
        return element_type_of(np.dtype(value))
    except (TypeError, ValueError, KeyError):
        raise broken_rule(f"element_type: there is no element type {shown(value)}", argument) from None


def as_shape(value: ShapeLike, argument: str = "shape") -> Shape:
    """The shape that `value` describes, with its layout if it states one."""
    if isinstance(value, Shape):
        _check(value, argument)
        return value
    if isinstance(value, str):
        try:
            return parse_shape(value)
        except HloSyntaxError as error:
            raise broken_rule(f"shape: {value!r} is no shape: {error.message}", argument) from None
    dims = getattr(value, "shape", None)
    if isinstance(dims, Shape):  # an operand
        return dims.without_layout()
    dtype = getattr(value, "dtype", None)
    if dims is not None and dtype is not None:
        return Shape(as_element_type(dtype, argument), tuple(int(d) for d in dims))
    if isinstance(value, (tuple, list)):
        if len(value) == 2 and isinstance(value[1], (tuple, list)) and _are_integers(value[1]):
            shape = Shape(as_element_type(value[0], argument), tuple(value[1]))
            _check(shape, argument)
            return shape
        return Shape.tuple([as_shape(element, argument) for element in value])
    raise broken_rule(f"shape: {shown(value)} is no shape", argument)


def _are_integers(value: Sequence[Any]) -> bool:
    """Integers of 64 bits: HLO has no others."""
    return all(
        isinstance(dimension_size, (int, np.integer))
        and not isinstance(dimension_size, bool)
        and -(2**63) <= dimension_size < 2**63
        for dimension_size in value
    )


def _check(shape: Shape, argument: str) -> None:
    for leaf in shape.leaves():
        if any(d < 0 and d != UNBOUNDED for d in leaf.dims):
            raise broken_rule(f"shape: {leaf} has a negative size", argument)
        if leaf.layout is not None and sorted(leaf.layout.minor_to_major) != list(range(leaf.rank)):
            order = list(leaf.layout.minor_to_major)
            raise broken_rule(f"shape.layout: minor-to-major order {order} is no order of the dimensions of {leaf}")


def as_integers(value: Any, argument: str) -> tuple[int, ...]:
    """A sequence of integers, as Python's own."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, (tuple, list, range)) or not _are_integers(list(value)):
        raise broken_rule(f"argument: {argument} must be a sequence of integers, not {shown(value)}", argument)
    return tuple(int(v) for v in value)


def as_integer(value: Any, argument: str) -> int:
    """An integer, as Python's own."""
    if not _are_integers([value]):
        raise broken_rule(f"argument: {argument} must be an integer, not {shown(value)}", argument)
    return int(value)


def as_number(value: Any, argument: str) -> float:
    """A real number, as Python's own."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise broken_rule(f"argument: {argument} must be a number, not {shown(value)}", argument)
    return float(value)


def as_flag(value: Any, argument: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise broken_rule(f"argument: {argument} must be True or False, not {shown(value)}", argument)
    return bool(value)


def as_word(value: Any, argument: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise broken_rule(f"argument: {argument} must be a string, not {shown(value)}", argument)
    return value


def as_sequence(value: Any, argument: str) -> Sequence[Any]:
    """A tuple or a list of Python."""
    if not isinstance(value, (tuple, list)):
        raise broken_rule(f"argument: {argument} must be a sequence, not {shown(value)}", argument)
    return value


def as_literal(value: ConstantLike, element_type: ElementType | None, like: ElementType | None = None) -> Literal:
    """A constant of `element_type`.

    Without one, arrays and scalars of NumPy keep their own type; numbers of Python, and lists of them, take that of
    `like` (the other operand's), else s32, f32, c64 or pred.
    """
    is_typed = isinstance(value, (np.ndarray, np.generic))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # a list of operands, or lines of unequal lengths
        raise broken_rule(f"constant: {shown(value)} is no array of numbers", culprits=[value]) from None
    if is_typed and element_type is None:
        try:
            element_type = element_type_of(array.dtype)
        except KeyError:
            raise broken_rule(f"constant: XLA has no element type for {array.dtype}", culprits=[value]) from None
    if is_typed and element_type is not None and array.dtype == element_type.dtype:
        return Literal(Shape(element_type, array.shape), array)
    if array.size == 0 and not is_typed:
        array = array.astype(np.int64)
    try:
        source = element_type_of(array.dtype)
    except KeyError:
        raise broken_rule(f"constant: {value!r} is no number and no array of numbers", culprits=[value]) from None
    wanted = element_type or like or _OF_PYTHON[_rank(source)]
    converted = _converted(array, source, wanted)
    if converted is None:
        raise broken_rule(f"constant: {shown(value)} is no constant of {wanted}", culprits=[value])
    return Literal(Shape(wanted, array.shape), converted)


def _converted(array: Array, source: ElementType, wanted: ElementType) -> Array | None:
    """Numbers as another type that holds them; None where a fraction, an imaginary part or upper bits would be lost."""
    if _rank(source) > _rank(wanted):
        return None
    if wanted.is_integer and source.is_integer and array.size:
        low, high = integer_range(wanted)
        wide = array.astype(np.int64 if source.is_signed else np.uint64)
        if not (low <= int(wide.min()) and int(wide.max()) <= high):
            return None
    with np.errstate(all="ignore"):
        converted = np.asarray(array.astype(wanted.dtype))
        if source.is_float and not np.isfinite(converted.astype(np.complex128))[np.isfinite(array)].all():
            return None
    return converted


def _rank(element_type: ElementType) -> int:
    """pred, integers, floats, complex numbers: each has the values of those before it, but for roundings."""
    if element_type is PRED:
        return 0
    return 1 if element_type.is_integer else 3 if element_type.is_complex else 2
