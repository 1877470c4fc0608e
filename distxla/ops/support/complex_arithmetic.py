"""Complex arithmetic in NumPy where NumPy's own loses infinities and signs."""

from __future__ import annotations

import numpy as np

from distxla.ir.unwritten import empty
from distxla.ops.support.conversion import Array


def complex_of(real: Array, imag: Array) -> Array:
    """Set by parts: real + 1j * imag makes NaN of infinities."""
    real, imag = np.asarray(real), np.asarray(imag)
    result = empty(real.shape, np.result_type(real.dtype, np.complex64))
    result.real, result.imag = real, imag
    return result


def quotient(dividend: Array, divisor: Array) -> Array:
    """As C's Annex G: x / 0 is infinite, an infinity by a finite number too, a finite number by an infinity is 0.

    In a type in which no product of f64 overflows or vanishes.
    """
    a, b = dividend.real.astype(np.longdouble), dividend.imag.astype(np.longdouble)
    c, d = divisor.real.astype(np.longdouble), divisor.imag.astype(np.longdouble)
    with np.errstate(all="ignore"):
        size = c * c + d * d
        real, imag = (a * c + b * d) / size, (b * c - a * d) / size
        lost = np.isnan(real) & np.isnan(imag)

        by_zero = lost & (size == 0) & ~(np.isnan(a) & np.isnan(b))
        lost &= ~by_zero
        infinity = np.copysign(np.inf, c)
        real, imag = np.where(by_zero, infinity * a, real), np.where(by_zero, infinity * b, imag)

        grows = lost & (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
        p, q = _direction(a), _direction(b)
        real = np.where(grows, np.inf * (p * c + q * d), real)
        imag = np.where(grows, np.inf * (q * c - p * d), imag)

        vanishes = lost & (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
        p, q = _direction(c), _direction(d)
        real = np.where(vanishes, 0.0 * (a * p + b * q), real)
        imag = np.where(vanishes, 0.0 * (b * p - a * q), imag)
        part = dividend.real.dtype
        return complex_of(real.astype(part), imag.astype(part))


def _direction(part: Array) -> Array:
    """1 for an infinity, 0 for the rest, signs kept."""
    return np.asarray(np.copysign(np.isinf(part).astype(part.dtype), part))
