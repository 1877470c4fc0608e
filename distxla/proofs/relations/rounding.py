"""Constants as fractions: 0.33333334 in f32 is one third, so that a third of a sum is the sum of thirds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes


def as_fraction(value: Any) -> Fraction:
    """The fraction of the smallest denominator that rounds to this float.

    value: finite, not 0, of any NumPy type of floats.
    """
    exact = Fraction(float(value))
    eps: Any = ml_dtypes.finfo(value.dtype).eps  # type: ignore[no-untyped-call]
    mantissa, exponent = math.frexp(abs(float(value)))
    half = Fraction(float(eps)) * Fraction(2) ** (exponent - 1) * Fraction(499, 1000)  # no two floats share a fraction
    low = abs(exact) - (half / 2 if mantissa == 0.5 else half)  # below a power of two floats are twice as dense
    return _simplest(low, abs(exact) + half) * (1 if exact > 0 else -1)


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of the smallest denominator in [low, high], of positive numbers."""
    whole = -(-low.numerator // low.denominator)
    if whole <= high:
        return Fraction(whole)
    floor = low.numerator // low.denominator
    return floor + 1 / _simplest(1 / (high - floor), 1 / (low - floor))


__all__ = ["as_fraction"]
