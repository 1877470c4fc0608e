"""How far a value may be from the right one, in units in the last place (ULP) of its type.

One table for all tests. A test that needs more says so where it needs it, with the reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.ir.element_type import ElementType

Array = np.ndarray[Any, Any]

# One rounding for narrow floats, which are computed in f32; f32 and f64 may differ by the order of a few operations.
ULPS = {
    "f64": 4, "c128": 4,
    "f32": 4, "c64": 4,
    "f16": 1, "bf16": 1,
    "f8e5m2": 1, "f8e4m3": 1, "f8e4m3fn": 1, "f8e4m3b11fnuz": 1, "f8e5m2fnuz": 1, "f8e4m3fnuz": 1, "f8e3m4": 1,
    "f8e8m0fnu": 1, "f4e2m1fn": 1,
}  # fmt: skip

# exponential, log, tanh, sine …: what the emitted functions promise (docs/accuracy.md), on top of NumPy's own error
TRANSCENDENTAL_ULPS = {"f64": 4, "f32": 4, "f16": 1, "bf16": 1, "c64": 64, "c128": 64}


def ulps_between(got: Array, wanted: Array) -> Array:
    """Distance in representable values, elementwise; 0 for two NaNs and for -0.0 against 0.0, a huge one for NaN or inf
    on one side only. Complex values: the worse part."""
    if np.iscomplexobj(wanted):
        return np.maximum(ulps_between(got.real, wanted.real), ulps_between(got.imag, wanted.imag))
    a, b = _ordinals(got), _ordinals(wanted)
    distance = np.abs(a - b)
    nans = np.isnan(got.astype(np.float64)), np.isnan(wanted.astype(np.float64))
    distance = np.where(nans[0] & nans[1], 0.0, distance)
    return np.where(nans[0] ^ nans[1], np.inf, distance)


def assert_close(got: Array, wanted: Array, element: ElementType, ulps: int | None = None, what: str = "") -> None:
    """Equal for integers and predicates; within `ulps` (the table's where None) for floats and complex."""
    assert got.shape == wanted.shape, f"{what}: sizes {got.shape} instead of {wanted.shape}"
    assert got.dtype == wanted.dtype == element.dtype, f"{what}: {got.dtype} instead of {element.dtype}"
    if not (element.is_float or element.is_complex):
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    limit = ULPS[element.name] if ulps is None else ulps
    distance = ulps_between(got, wanted)
    if distance.size and not np.all(distance <= limit):
        at = np.unravel_index(int(np.argmax(distance)), distance.shape)
        raise AssertionError(
            f"{what}: {int((distance > limit).sum())} of {distance.size} elements are more than {limit} ULP off; worst "
            f"{distance[at]:g} at {[int(i) for i in at]}: {got[at]} instead of {wanted[at]}"
        )


def _ordinals(array: Array) -> Array:
    """Integers in the order of the floats, so that neighbours differ by 1 and both zeros are 0."""
    width = array.dtype.itemsize
    bits = np.ascontiguousarray(array).reshape(array.shape).view(f"int{8 * width}")
    if array.dtype.name == "float4_e2m1fn":
        bits = (bits << 4).astype(np.int8)  # the sign belongs into the top bit; neighbours are 16 apart then
        return _fold(bits, width) / 16
    return _fold(bits, width)


def _fold(bits: Array, width: int) -> Array:
    wide = bits.astype(np.int64)
    lowest = -(1 << (8 * width - 1))
    return np.where(wide < 0, np.longdouble(lowest) - wide, wide).astype(np.longdouble)
