"""Arguments of the cases: arrays for all devices, from a generator that the case's name seeds.

A function of this file is `values(rng, shape, devices, k)`: operand k, one array a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
Values = Callable[[Generator, Shape, int, int], list[Array]]


def _per_device(array: Callable[[Generator, Shape], Array]) -> Values:
    return lambda rng, shape, devices, k: [array(rng, shape) for _ in range(devices)]


def _integers(rng: Generator, shape: Shape) -> Array:
    """From the whole range of the type, so that sums and products wrap around."""
    kind = shape.dtype
    if kind.name == "pred":
        return np.asarray(rng.random(shape.dims) < 0.5)
    low, high = (-(1 << kind.bits - 1), 1 << kind.bits - 1) if kind.is_signed else (0, 1 << kind.bits)
    drawn = rng.integers(low, high, shape.dims, dtype=np.int64 if kind.is_signed else np.uint64)
    return np.asarray(drawn).astype(kind.dtype)


def _parts(rng: Generator, shape: Shape, draw: Callable[[ElementType], Any]) -> Array:
    """Complex numbers have two of the drawn ones."""
    kind = shape.dtype
    real = draw(kind.real_part)
    return np.asarray(real + 1j * draw(kind.real_part) if kind.is_complex else real).astype(kind.dtype)


def _exact_sums(rng: Generator, shape: Shape) -> Array:
    """Small integers: a sum of eight of them is exact in every type, in any order."""
    if not (shape.dtype.is_float or shape.dtype.is_complex):
        return _integers(rng, shape)
    return _parts(rng, shape, lambda kind: rng.integers(*((-1, 2) if kind.bits <= 8 else (-8, 9)), shape.dims))


def _exact_products(rng: Generator, shape: Shape) -> Array:
    """Powers of two: no product rounds."""
    if not (shape.dtype.is_float or shape.dtype.is_complex):
        return _integers(rng, shape)
    return _parts(rng, shape, lambda kind: rng.choice([-1.0, 1.0, 2.0, 0.5, -2.0], shape.dims))


def _rounding(rng: Generator, shape: Shape) -> Array:
    """Floats of several magnitudes, with all bits of the mantissa in use."""

    def draw(kind: ElementType) -> Array:
        return np.asarray(rng.standard_normal(shape.dims) * 2.0 ** rng.integers(-2, 3, shape.dims))

    if not (shape.dtype.is_float or shape.dtype.is_complex):
        return _integers(rng, shape)
    return _parts(rng, shape, draw)


def _positive(rng: Generator, shape: Shape) -> Array:
    """Floats between 0.5 and 1.5, whose sums cancel nothing: the order of the members moves the last bits only."""
    return _parts(rng, shape, lambda kind: rng.random(shape.dims) + 0.5)


def _bits(rng: Generator, shape: Shape) -> Array:
    """Any bits: NaN, infinities, subnormal numbers and both zeros among them."""
    kind = shape.dtype
    if kind.name == "pred" or kind.is_integer or kind.bits < 8:
        return _rounding(rng, shape)
    raw = rng.integers(0, 256, (*shape.dims, kind.byte_size), dtype=np.uint8)
    return np.ascontiguousarray(raw).view(kind.dtype).reshape(shape.dims)


exact_sums, exact_products = _per_device(_exact_sums), _per_device(_exact_products)
rounding, positive, bits = _per_device(_rounding), _per_device(_positive), _per_device(_bits)


def columns(rows: Sequence[Sequence[float]]) -> Values:
    """rows[i][d]: element i on device d; the shape is [len(rows)]."""

    def values(rng: Generator, shape: Shape, devices: int, k: int) -> list[Array]:
        return [np.array([row[device] for row in rows]).astype(shape.dtype.dtype) for device in range(devices)]

    return values


def given(*operands: Sequence[Any], others: Values = bits) -> Values:
    """operands[k][d]: operand k of device d, as nested lists; those beyond are the others'. An empty one is, too."""

    def values(rng: Generator, shape: Shape, devices: int, k: int) -> list[Array]:
        if k >= len(operands) or not operands[k]:
            return others(rng, shape, devices, k)
        return [np.array(operands[k][device], shape.dtype.dtype).reshape(shape.dims) for device in range(devices)]

    return values
