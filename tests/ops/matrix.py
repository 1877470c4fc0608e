"""Every element-wise op over every element type: all values where a type has few, corners against corners elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from distxla.ir.element_type import DATA_TYPES, FLOATS, INTEGERS, PRED, ElementType
from distxla.ir.shape import Shape
from distxla.ops import elementwise_binary, elementwise_unary
from distxla.ops.convert import UNSIGNED
from distxla.ops.support.conversion import integer_range
from tests.ops.case import Array, Case

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
PRECISIONS = ((5, 10), (8, 7), (4, 3), (1, 1), (11, 52), (3, 30))

NARROW_FLOATS = [element for element in FLOATS if element.bits <= 8]
OF_NARROW_FLOATS = {
    *("convert", "bitcast-convert", "reduce-precision", "stochastic-convert", "iota"),
    *("compare", "add", "negate", "abs", "sign", "is-finite", "select"),
}

# Ordinary numbers and the places where functions turn: the numbers whose exponentials overflow, halves, multiples of
# pi/2, the neighbourhood of 1.
_NUMBERS = (
    0.0, 1.0, 0.5, 1.5, 2.0, 2.5, 3.0, 3.7, 0.1, 0.49999997, 0.99999994, 1.0000001, 1e-3, 7.0, 10.0, 17.0, 100.0, 88.72,
    88.73, 103.9, 104.1, 709.7, 709.8, 745.2, 1.5707964, 3.1415927, 6.2831855, 255.5, 65504.0, 65520.0, 1e5, 8388609.0,
    2.0**31, 2.0**32, 2.0**53, 2.0**63, 2.0**64, 1e-30, 1e30,
)  # fmt: skip


def _signed(numbers: Array) -> Array:
    return np.concatenate([numbers, -numbers])


def corners(element: ElementType) -> Array:
    """The values at which the semantics of `element` turn, some 80 for a float."""
    if element is PRED:
        return np.array([False, True])
    if element.is_integer:
        low, high = integer_range(element)
        near = {0, 1, 2, 3, 5, 7, 10, element.bits - 1, element.bits, element.bits + 1, high, high - 1, high // 2, low}
        near |= {low + 1, -1, -2, -3, -7, -element.bits, 1 << (element.bits // 2), high // 3}
        fitting = sorted(v for v in near if low <= v <= high)
        return np.array(fitting, np.int64 if element.is_signed else np.uint64).astype(element.dtype)
    if element.is_complex:
        parts = np.array([0.0, 1.0, 0.5, 1e-3, 3.0, 20.0, 1e30, np.inf], element.real_part.dtype)
        parts = np.append(_signed(parts), np.array(np.nan, element.real_part.dtype))
        result = np.empty((parts.size, parts.size), element.dtype)
        result.real, result.imag = parts[:, None], parts[None, :]
        return result.ravel()
    if element.bits <= 8:
        return every(element)
    limits: Any = ml_dtypes.finfo(element.dtype)
    extreme = np.array([limits.max, limits.tiny, limits.smallest_subnormal, np.inf, np.nan]).astype(element.dtype)
    with np.errstate(all="ignore"):
        inside = np.array(_NUMBERS).astype(element.dtype)
        half = (extreme[:2].astype(np.float64) * 0.75).astype(element.dtype)
    return _signed(np.concatenate([inside, extreme, half]))


def every(element: ElementType) -> Array:
    """All values of a type of at most 16 bits, NaNs of all payloads included."""
    if element is PRED:
        return np.array([False, True])
    codes = np.arange(1 << element.bits)
    if element.is_integer:
        low, _ = integer_range(element)
        return (codes + low).astype(element.dtype)
    return codes.astype(f"u{element.byte_size}").view(element.dtype)


def single(element: ElementType) -> Array:
    """Arguments of an op of one operand."""
    return every(element) if element.bits <= 16 else corners(element)


def pairs(element: ElementType) -> tuple[Array, Array]:
    """Arguments of an op of two operands: all pairs of types up to 8 bits."""
    values = every(element) if element.bits <= 8 else corners(element)
    left, right = (np.ascontiguousarray(a).ravel() for a in np.meshgrid(values, values, indexing="ij"))
    return left, right


def triples(element: ElementType) -> tuple[Array, ...]:
    """Arguments of an op of three operands."""
    values = every(element) if element.bits <= 4 else corners(element)
    if len(values) > 24:
        values = values[:: -(-len(values) // 24)]
    return tuple(np.ascontiguousarray(a).ravel() for a in np.meshgrid(values, values, values, indexing="ij"))


def joined_values(cases: Sequence[Case]) -> list[Array]:
    """The arguments of the cases' joined module."""
    return [value for case in cases for value in case.values()]


def _case(opcode: str, arguments: tuple[Array, ...], types: tuple[ElementType, ...], **more: Any) -> Case:
    shapes = tuple(Shape(t, a.shape) for t, a in zip(types, arguments, strict=True))
    return Case(opcode, shapes, arguments=arguments, **more)


def cases_of(element: ElementType) -> Iterator[Case]:
    """All cases whose first data operand (or result, for iota) has the element type."""
    one, two = single(element), pairs(element)
    for row in elementwise_unary.ROWS:
        if element in row.domain:
            yield _case(row.opcode, (one,), (element,))
    for binary in elementwise_binary.ROWS:
        if element in binary.domain:
            yield _case(binary.opcode, two, (element, element))
    yield from _comparisons(element, two)
    predicate, _ = pairs(PRED)
    sides = tuple(a[:4] for a in two)
    yield _case("select", (predicate[: sides[0].size], *sides), (PRED, element, element))
    if element in (*FLOATS, *INTEGERS):
        yield _case("clamp", triples(element), (element, element, element))
    for to in DATA_TYPES:
        values = conversion_values(element, to)
        yield _case("convert", (values,), (element,), result=Shape(to, values.shape))
    yield from _bitcasts(element)
    if element.is_float:
        for exponent, mantissa in PRECISIONS:
            attributes = {"exponent_bits": exponent, "mantissa_bits": mantissa}
            yield _case("reduce-precision", (one,), (element,), attributes=attributes)
    if element.is_float and element.bits in UNSIGNED:
        yield from _stochastic(element)
    if element is not PRED:
        yield Case("iota", (), {"iota_dimension": 0}, Shape(element, (300,)))


def is_of_its_own(case: Case, element: ElementType) -> bool:
    """Whether the type has code of its own for it: other ops of narrow floats are those of f32 between conversions."""
    return element not in NARROW_FLOATS or case.opcode in OF_NARROW_FLOATS


def _comparisons(element: ElementType, two: tuple[Array, Array]) -> Iterator[Case]:
    orders: tuple[str | None, ...] = (None, "TOTALORDER") if element.is_float else (None,)
    for order, direction in product(orders, DIRECTIONS):
        if element.is_complex and direction not in ("EQ", "NE"):
            continue
        attributes = {"direction": direction} | ({"comparison": order} if order else {})
        yield _case("compare", two, (element, element), attributes=attributes)


def conversion_values(element: ElementType, to: ElementType) -> Array:
    """All values or corners of `element`, with the neighbourhoods of what lies half-way between values of `to`."""
    values = single(element)
    if element.bits <= 16 or element.is_complex or element is PRED:
        return values
    if element.is_integer:
        low, high = integer_range(element)
        # ties of 2 to 11 bits of mantissa, those of narrower floats behind bits that an f32 would drop
        steps = [(j << k) + d for k in range(element.bits) for j in (1, 3, 5, 17, 257, 2049) for d in (-1, 0, 1)]
        near = [v for s in steps for v in (s, -s) if low <= v <= high]
        return np.concatenate([values, np.array(near, object).astype(element.dtype)])
    if to.is_integer:
        low, high = integer_range(to)
        near = np.array([b + d for b in (low, high, 0) for d in (-1.0, -0.75, -0.5, 0.0, 0.5, 0.75, 1.0)])
        return np.concatenate([values, *_neighbours(near.astype(element.dtype))])
    if to.is_float and to.bits <= 16:
        with np.errstate(all="ignore"):
            targets = every(to).astype(np.float64)
            targets = np.unique(targets[np.isfinite(targets)])
            beyond = targets[-1] * np.array([1.0625, 1.5, 2.0])
            ties = np.concatenate([(targets[1:] + targets[:-1]) / 2, beyond])
            return np.concatenate([values, *_neighbours(ties.astype(element.dtype))])
    if to.name == "f32":
        ties = np.nextafter(np.float32(1) * 2.0 ** np.arange(-149, 128, 7).astype(np.float32), np.float32(np.inf))
        middle = (ties.astype(np.float64) + np.nextafter(ties, np.float32(np.inf))) / 2
        return np.concatenate([values, *_neighbours(middle.astype(element.dtype))])
    return values


def _neighbours(values: Array) -> tuple[Array, Array, Array]:
    return values, np.nextafter(values, values.dtype.type(np.inf)), np.nextafter(values, values.dtype.type(-np.inf))


def _bitcasts(element: ElementType) -> Iterator[Case]:
    """To every type: of equal width, into a new last dimension, or joining one."""
    for to in DATA_TYPES:
        if element.is_complex != to.is_complex:
            continue
        values = single(element)
        if element.bits >= to.bits:
            ratio = element.bits // to.bits
            if to is PRED and element is not PRED:
                # the bits of a pred are 0 and 1
                values = values[:0]
            dims = (values.size, ratio) if ratio > 1 else values.shape
            yield _case("bitcast-convert", (values,), (element,), result=Shape(to, dims))
        else:
            ratio = to.bits // element.bits
            values = values[: values.size // ratio * ratio].reshape(-1, ratio)
            yield _case("bitcast-convert", (values,), (element,), result=Shape(to, values.shape[:1]))


def _stochastic(element: ElementType) -> Iterator[Case]:
    random = UNSIGNED[element.bits]
    numbers = corners(element)
    highest = (1 << element.bits) - 1
    bits = np.random.default_rng(1).integers(0, highest, (numbers.size, 8), np.uint64, endpoint=True)
    bits[:, :3] = 0, highest, highest // 2 + 1
    x = np.repeat(numbers, 8)
    for to in INTEGERS:
        yield _case(
            "stochastic-convert", (x, bits.ravel().astype(random.dtype)), (element, random), result=Shape(to, x.shape)
        )
