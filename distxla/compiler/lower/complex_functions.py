"""Elementary functions of complex numbers with f64 parts, straight-line like the real ones they are made of.

Special values are those of C's Annex G; where it leaves the result open (signs beside a NaN), any is given. The inverse
functions are Kahan's, in which no sum cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from distxla.compiler.lower import exponentials, trigonometry
from distxla.compiler.lower.double_double import two_product, two_sum
from distxla.compiler.lower.scalar_expression import ScalarExpr

ComplexParts = tuple[ScalarExpr, ScalarExpr]
_LARGEST_LOG = 709.0


def multiply(x: ComplexParts, y: ComplexParts) -> ComplexParts:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def quotient(x: ComplexParts, y: ComplexParts) -> ComplexParts:
    """With the divisor brought to about 1, so that its square neither overflows nor vanishes."""
    a, b = x
    c, d = y
    scale = _scale(0, c, d)
    # the numerator's two products must not overflow or vanish either
    size = a.abs().call("maxnum", b.abs())
    factor = size.gt(2.0**1020).select(a.constant(2.0**-4), size.lt(2.0**-900).select(a.constant(2.0**100), 1.0))
    u, v = a * factor, b * factor
    p, q = c * scale, d * scale
    square = p * p + q * q
    real = (u * p + v * q) / square * scale / factor
    imag = (v * p - u * q) / square * scale / factor
    return _recovered(x, y, (real, imag))


def squarable(*values: ScalarExpr) -> tuple[ScalarExpr, ...]:
    """All of them times one power of two, so that no square overflows and few vanish."""
    scale = _scale(500, *values)
    return tuple(value * scale for value in values)


def _scale(exponent: int, *values: ScalarExpr) -> ScalarExpr:
    """The power of two that brings the largest magnitude to about 2^exponent."""
    largest = values[0].abs()
    for value in values[1:]:
        largest = largest.call("maxnum", value.abs())
    field = largest.bits().lshr(52).call("umin", 2045).call("umax", exponent + 1)
    return (2046 + exponent - field).shl(52).float_of_bits()


def _recovered(x: ComplexParts, y: ComplexParts, result: ComplexParts) -> ComplexParts:
    """Zeros and infinities for quotients that came out as NaN but have a direction or a size."""
    (a, b), (c, d) = x, y
    real, imag = result
    lost = real.is_nan() & imag.is_nan()
    known = (a.is_nan() & b.is_nan()) ^ -1
    infinity = a.constant(math.inf)
    by_zero = lost & known & c.eq(0.0) & d.eq(0.0)
    infinite = [v.abs().eq(math.inf) for v in (a, b, c, d)]
    finite = [v.abs().lt(math.inf) for v in (a, b, c, d)]
    grows = lost & (infinite[0] | infinite[1]) & finite[2] & finite[3]
    vanishes = lost & (infinite[2] | infinite[3]) & finite[0] & finite[1]
    unit = [i.select(v.constant(1.0), 0.0).copysign(v) for i, v in zip(infinite, (a, b, c, d))]
    u, v = grows.select(unit[0], a), grows.select(unit[1], b)
    p, q = vanishes.select(unit[2], c), vanishes.select(unit[3], d)
    size = grows.select(infinity, 0.0)
    special = grows | vanishes
    real, imag = special.select(size * (u * p + v * q), real), special.select(size * (v * p - u * q), imag)
    signed = infinity.copysign(c)
    return by_zero.select(signed * a, real), by_zero.select(signed * b, imag)


def absolute(x: ComplexParts) -> ScalarExpr:
    """Infinite where a part is, even beside a NaN."""
    a, b = x[0].abs(), x[1].abs()
    larger = a.call("maxnum", b)
    scale = larger.gt(2.0**500).select(a.constant(2.0**-600), 1.0)
    scale = larger.lt(2.0**-400).select(2.0**600, scale)
    u, v = a * scale, b * scale
    modulus = u.fma(u, v * v).sqrt() / scale
    return (a.eq(math.inf) | b.eq(math.inf)).select(math.inf, modulus)


def exp(x: ComplexParts) -> ComplexParts:
    a, b = x
    # e^a may overflow where its product with a small cosine does not
    large = a.gt(_LARGEST_LOG)
    e = exponentials.exp(large.select(a - _LARGEST_LOG, a))
    more = large.select(a.constant(math.exp(_LARGEST_LOG)), 1.0)
    unknown = b.abs().lt(math.inf) ^ -1
    c = (unknown & a.abs().eq(math.inf)).select(1.0, trigonometry.cos(b))
    s = (unknown & a.eq(-math.inf)).select(1.0, trigonometry.sin(b))
    return e * c * more, b.eq(0.0).select(b, e * s * more)


def expm1(x: ComplexParts) -> ComplexParts:
    a, b = x
    half = trigonometry.sin(b * 0.5)
    real, imag = exp(x)
    near = a.abs().lt(_LARGEST_LOG) & b.abs().lt(math.inf)
    exact = exponentials.expm1(a) * trigonometry.cos(b) - half * half * 2.0
    return b.eq(0.0).select(exponentials.expm1(a), near.select(exact, real - 1.0)), imag


def log(x: ComplexParts) -> ComplexParts:
    return _log_of_modulus(x), trigonometry.atan2(x[1], x[0])


def _log_of_modulus(x: ComplexParts) -> ScalarExpr:
    """log |x|; near the unit circle from |x|^2 - 1, in which nothing is lost."""
    a, b = x[0].abs(), x[1].abs()
    larger, smaller = a.call("maxnum", b), a.call("minnum", b)
    modulus = absolute(x)
    (p, p_low), (q, q_low) = two_product(larger, larger), two_product(smaller, smaller)
    excess, low = two_sum(p - 1.0, q)
    close = exponentials.log1p(excess + (low + p_low + q_low)) * 0.5
    return (modulus.gt(0.75) & modulus.lt(1.5)).select(close, exponentials.log(modulus))


def log1p(x: ComplexParts) -> ComplexParts:
    a, b = x
    # |1 + x|^2 - 1 = 2 a + a^2 + b^2
    near = a.abs().lt(0.5) & b.abs().lt(0.5)
    (p, p_low), (q, q_low) = two_product(a, a + 2.0), two_product(b, b)
    # the rounding error of a + 2
    p_low = (a - ((a + 2.0) - 2.0)).fma(a, p_low)
    excess, low = two_sum(p, q)
    close = exponentials.log1p(excess + (low + p_low + q_low)) * 0.5
    return near.select(close, _log_of_modulus((a + 1.0, b))), trigonometry.atan2(b, a + 1.0)


def logistic(x: ComplexParts) -> ComplexParts:
    real, imag = exp((-x[0], -x[1]))
    one = x[0].constant(1.0)
    return quotient((one, x[0].constant(0.0)), (real + 1.0, imag))


def sqrt(x: ComplexParts) -> ComplexParts:
    """The principal root; the imaginary part keeps the operand's sign."""
    a, b = x
    size = a.abs().call("maxnum", b.abs())
    large, small = size.gt(2.0**1020), size.lt(2.0**-900)
    scale = large.select(a.constant(2.0**-4), small.select(a.constant(2.0**120), 1.0))
    back = large.select(a.constant(2.0**2), small.select(a.constant(2.0**-60), 1.0))
    u, v = a * scale, b * scale
    t = ((u.abs() + absolute((u, v))) * 0.5).sqrt()
    other = t.eq(0.0).select(0.0, v.abs() / (t * 2.0)) * back
    t = t * back
    negative = a.lt(0.0)
    real, imag = negative.select(other, t), negative.select(t, other)
    infinite = b.abs().eq(math.inf)
    return infinite.select(math.inf, real), infinite.select(math.inf, imag).copysign(b)


def rsqrt(x: ComplexParts) -> ComplexParts:
    one = x[0].constant(1.0)
    return quotient((one, x[0].constant(0.0)), sqrt(x))


def sign(x: ComplexParts) -> ComplexParts:
    """Each part over the modulus: infinite parts give NaN."""
    modulus = absolute(x)
    zero = modulus.eq(0.0)
    return zero.select(0.0, x[0] / modulus), zero.select(0.0, x[1] / modulus)


# --- hyperbolic and circular functions -----------------------------------------------------------------------------


def sinh(x: ComplexParts) -> ComplexParts:
    a, b = x
    unknown = b.abs().lt(math.inf) ^ -1
    real = exponentials.sinh(a) * trigonometry.cos(b)
    imag = exponentials.cosh(a) * trigonometry.sin(b)
    real = (unknown & (a.eq(0.0) | a.abs().eq(math.inf))).select(a, real)
    return b.eq(0.0).select(exponentials.sinh(a), real), b.eq(0.0).select(b, imag)


def cosh(x: ComplexParts) -> ComplexParts:
    a, b = x
    unknown = b.abs().lt(math.inf) ^ -1
    real = exponentials.cosh(a) * trigonometry.cos(b)
    imag = exponentials.sinh(a) * trigonometry.sin(b)
    real = (unknown & a.abs().eq(math.inf)).select(a.abs(), real)
    none = b.eq(0.0) | (unknown & a.eq(0.0))
    signs = (a.constant(1.0).copysign(a) * a.constant(1.0).copysign(b)) * 0.0
    return b.eq(0.0).select(exponentials.cosh(a), real), none.select(signs, imag)


def tanh(x: ComplexParts) -> ComplexParts:
    a, b = x
    large = a.abs().gt(22.0)
    t = trigonometry.tan(b)
    slope = t.fma(t, 1.0)
    s = exponentials.sinh(large.select(1.0, a))
    divisor = (slope * s).fma(s, 1.0)
    real = slope * s.fma(s, 1.0).sqrt() * s / divisor
    infinite = a.abs().eq(math.inf)
    one = (t.is_nan() & (infinite ^ -1)).select(math.nan, a.constant(1.0).copysign(a))
    # beyond 22 it differs from 1 by less than the last place
    faint = (t / slope) * 4.0 * exponentials.exp(a.abs() * -2.0)
    imag = large.select((infinite & t.is_nan()).select(0.0, faint), t / divisor)
    unknown = a.eq(0.0) & t.is_nan()
    return large.select(one, unknown.select(a, real)), b.eq(0.0).select(b, imag)


def asin(x: ComplexParts) -> ComplexParts:
    a, b = x
    below, above = sqrt((1.0 - a, -b)), sqrt((a + 1.0, b))
    real = trigonometry.atan2(a, below[0] * above[0] - below[1] * above[1])
    imag = exponentials.asinh(below[0] * above[1] - below[1] * above[0])
    infinite, (p, q) = _direction(x)
    real = infinite.select(trigonometry.atan2(p, q.abs()), real)
    imag = infinite.select(a.constant(math.inf), imag).copysign(b)
    return (a.eq(0.0) & b.is_nan()).select(a, real), imag


def acos(x: ComplexParts) -> ComplexParts:
    a, b = x
    below, above = sqrt((1.0 - a, -b)), sqrt((a + 1.0, b))
    real = trigonometry.atan2(below[0], above[0]) * 2.0
    imag = exponentials.asinh(above[0] * below[1] - above[1] * below[0])
    infinite, (p, q) = _direction(x)
    real = infinite.select(trigonometry.atan2(q.abs(), p), real)
    imag = infinite.select(a.constant(math.inf), imag).copysign(-b)
    return (a.eq(0.0) & b.is_nan()).select(math.pi / 2, real), imag


def _direction(x: ComplexParts) -> tuple[ScalarExpr, ComplexParts]:
    """(whether x is infinite, the finite point that is then in its direction); NaN stays."""
    infinite = [v.abs().eq(math.inf) for v in x]
    parts = [v.is_nan().select(v, i.select(v.constant(1.0), 0.0).copysign(v)) for i, v in zip(infinite, x, strict=True)]
    return infinite[0] | infinite[1], (parts[0], parts[1])


def acosh(x: ComplexParts) -> ComplexParts:
    """acos, turned so that the real part is not negative."""
    real, imag = acos(x)
    return imag.abs(), real.copysign(x[1])


def atanh(x: ComplexParts) -> ComplexParts:
    a, b = x
    modulus = absolute(x)
    large = modulus.gt(2.0**60)
    c, d = a.abs(), 1.0 - a.abs()
    near = exponentials.log1p(c * 4.0 / d.fma(d, b * b)) * 0.25
    far = modulus.eq(math.inf).select(0.0, c / modulus / modulus)
    real = large.select(far, near)
    imag = trigonometry.atan2(b * 2.0, d.fma(a.abs() + 1.0, -(b * b))) * 0.5
    quarter = b.constant(math.pi / 2).copysign(b)
    known = a.abs().eq(math.inf) | b.abs().eq(math.inf)
    imag = (large & (modulus.is_nan() ^ -1)).select(quarter, imag)
    real = known.select(0.0, a.eq(0.0).select(0.0, real)).copysign(a)
    # beside an infinite part a NaN imaginary one stays
    return real, (b.is_nan() & known).select(b, imag)


def _times_i(function: Callable[[ComplexParts], ComplexParts]) -> Callable[[ComplexParts], ComplexParts]:
    """x -> -i f(i x)."""

    def rotated(x: ComplexParts) -> ComplexParts:
        real, imag = function((-x[1], x[0]))
        return imag, -real

    return rotated


atan = _times_i(atanh)
UNARY: dict[str, Callable[[ComplexParts], ComplexParts]] = {
    "exponential": exp,
    "exponential-minus-one": expm1,
    "log": log,
    "log-plus-one": log1p,
    "logistic": logistic,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "sign": sign,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "sine": _times_i(sinh),
    "cosine": lambda x: cosh((-x[1], x[0])),
    "tan": _times_i(tanh),
    "asin": asin,
    "acos": acos,
    "asinh": _times_i(asin),
    "acosh": acosh,
    "atanh": atanh,
}
