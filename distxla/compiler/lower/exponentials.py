"""Exponentials, logarithms, powers and hyperbolic functions as straight-line code; accuracy as in docs/accuracy.md."""

from __future__ import annotations

import math
from collections.abc import Callable

from distxla.compiler.lower.double_double import DoubleDouble, ordered_sum, two_product
from distxla.compiler.lower.scalar_expression import ScalarExpr

# (e^r - 1 - r) / r^2 on [-ln2/2, ln2/2]
_EXP_F32 = (0.001395051243276309, 0.008368902992249122, 0.04166620548132132, 0.16666518725810958, 0.5000000095286907)
_EXP_F64 = (
    2.1127980040808064e-09, 2.5121548447212627e-08, 2.755655723608632e-07, 2.755720427680043e-06,
    2.4801588178984924e-05, 0.00019841269931275467, 0.0013888888888464014, 0.008333333333300628, 0.0416666666666674,
    0.1666666666666671, 0.5,
)  # fmt: skip
# (log(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1]
_LOG_F32 = (
    0.06915180515025438, -0.1178984067018284, 0.11873079078589092, -0.1238435190525224, 0.1421864508339853,
    -0.16669250080199635, 0.20002227200394262, -0.24999986621574222, 0.3333331043170037,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s^2 in s^2
_LOG_F64 = (
    0.14796627116188268, 0.153139864873158, 0.18183566679656257, 0.2222219853096611, 0.2857142874276775,
    0.3999999999941311, 0.6666666666666735,
)  # fmt: skip
# (log((1 + s) / (1 - s)) - 2 s - 2/3 s^3) / s^5 in s^2
_LOG_TAIL = (
    0.13196106313967962, 0.13256843306624677, 0.1538675614244393, 0.1818178439559011, 0.22222222519556498,
    0.2857142857010193, 0.4000000000000225,
)  # fmt: skip
# (tanh(x) / x - 1) / x^2 in x^2, on [0, 0.6]
_TANH = (
    -0.005905974502858642, 0.020805531622138912, -0.05378674749563848, 0.13331959268652877, -0.33333299319201115,
)  # fmt: skip
# (sinh(x) / x - 1) / x^2 in x^2, on [0, 1]
_SINH = (
    7.759302263178715e-13, 1.6057240747330333e-10, 2.505212339217242e-08, 2.7557319155385393e-06, 0.000198412698414375,
    0.008333333333333139, 0.16666666666666669,
)  # fmt: skip

_LN2_HIGH = {32: 0.693359375, 64: 6.93147180369123816490e-01}
_LN2_LOW = {32: -2.12194440e-4, 64: 1.90821492927058770002e-10}
_ROUNDER = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def _bounded(x: ScalarExpr, low: float, high: float) -> ScalarExpr:
    """x within [low, high]; NaN stays NaN."""
    x = x.lt(low).select(low, x)
    return x.gt(high).select(high, x)


def _reduced(x: ScalarExpr) -> tuple[ScalarExpr, ScalarExpr]:
    """(n as an integer, r) with x = n ln2 + r, |r| <= ln2 / 2 and a bit; no undefined conversion for NaN."""
    rounder = x.constant(_ROUNDER[x.width])
    shifted = x.fma(math.log2(math.e), rounder)
    n = shifted - rounder
    r = n.fma(-_LN2_HIGH[x.width], x)
    r = n.fma(-_LN2_LOW[x.width], r)
    return shifted.bits() - rounder.bits(), r


def _power_of_two(n: ScalarExpr) -> ScalarExpr:
    """2.0 ** n for an integer within the exponents of normal numbers."""
    mantissa, bias = (23, 127) if n.width == 32 else (52, 1023)
    return (n + bias).shl(mantissa).float_of_bits()


def exp(x: ScalarExpr) -> ScalarExpr:
    return _scaled_exp(x, 0)


def _scaled_exp(x: ScalarExpr, exponent: int, lost: ScalarExpr | None = None) -> ScalarExpr:
    """e^(x + lost) 2^exponent, which may be finite where e^x is not; `lost` is below the last place of x."""
    limits = (-104.0, 90.0) if x.width == 32 else (-746.0, 711.0)
    n, r = _reduced(_bounded(x, *limits))
    if lost is not None:
        r = r + lost
    q = r.polynomial(_EXP_F32 if x.width == 32 else _EXP_F64)
    p = (r * r).fma(q, r) + 1.0
    # in two factors, so that neither overflows before the product does, and subnormal results round once
    half = n.ashr(1)
    return p * _power_of_two(half) * _power_of_two(n - half + exponent)


def expm1(x: ScalarExpr) -> ScalarExpr:
    limits = (-20.0, 89.0) if x.width == 32 else (-40.0, 710.0)
    n, r = _reduced(_bounded(x, *limits))
    q = r.polynomial(_EXP_F32 if x.width == 32 else _EXP_F64)
    p = (r * r).fma(q, r)
    half = _power_of_two(n - 1)
    total = half.fma(p, half - 0.5) * 2.0
    # r rounds tiny arguments away
    tiny = x.abs().lt(2.0**-30 if x.width == 32 else 2.0**-60)
    return tiny.select(x, total)


def _log_parts(x: ScalarExpr) -> tuple[ScalarExpr, ScalarExpr]:
    """(e, f) with x = 2^e (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], for normal positive x."""
    mantissa = 23 if x.width == 32 else 52
    half = 0x3F3504F3 if x.width == 32 else 0x3FE6A09E667F3BCD
    bits = x.bits()
    offset = bits - half
    e = offset.ashr(mantissa)
    one = (bits - e.shl(mantissa)).float_of_bits()
    if x.width == 64:
        # the hardware converts 32-bit integers in every vector width
        return x.of(x.builder.sitofp(e.trunc(32).value, x.type)), one - 1.0
    return x.of(x.builder.sitofp(e.value, x.type)), one - 1.0


def _normal_log_parts(x: ScalarExpr) -> tuple[ScalarExpr, ScalarExpr]:
    """`_log_parts` of any positive x."""
    smallest, scale, shift = (2.0**-126, 2.0**25, 25.0) if x.width == 32 else (2.0**-1022, 2.0**54, 54.0)
    subnormal = x.lt(smallest)
    e, f = _log_parts(subnormal.select(x * scale, x))
    return subnormal.select(e - shift, e), f


def _log_sum(e: ScalarExpr, f: ScalarExpr, correction: ScalarExpr | None = None) -> ScalarExpr:
    """e ln2 + log(1 + f) + correction."""
    width = f.width
    half_square = f * f * 0.5
    if width == 32:
        tail = f * f * f * f.polynomial(_LOG_F32)
        low = e.fma(_LN2_LOW[32], tail)
    else:
        s = f / (f + 2.0)
        z = s * s
        remainder = z * z.polynomial(_LOG_F64)
        tail = s * (half_square + remainder)
        low = e.fma(_LN2_LOW[64], tail)
    if correction is not None:
        low = low + correction
    return e.fma(_LN2_HIGH[width], f - (half_square - low))


def log(x: ScalarExpr) -> ScalarExpr:
    result = _log_sum(*_normal_log_parts(x))
    result = x.eq(0.0).select(-math.inf, result)
    result = x.lt(0.0).select(math.nan, result)
    return (x.is_nan() | x.eq(math.inf)).select(x, result)


def log1p(x: ScalarExpr) -> ScalarExpr:
    u = x + 1.0
    e, f = _log_parts(u)
    # the rounding error of 1 + x
    lost = x.gt(1.0).select(1.0 - (u - x), x - (u - 1.0))
    result = _log_sum(e, f, lost / u)
    result = x.eq(-1.0).select(-math.inf, result)
    result = x.lt(-1.0).select(math.nan, result)
    tiny = x.abs().lt(2.0**-30 if x.width == 32 else 2.0**-60)
    return (x.is_nan() | x.eq(math.inf) | tiny).select(x, result)


def tanh(x: ScalarExpr) -> ScalarExpr:
    a = x.abs()
    if x.width == 32:
        z = a * a
        small = (a * z).fma(z.polynomial(_TANH), a)
        large = 1.0 - 2.0 / (exp(_bounded(a, 0.0, 10.0) * 2.0) + 1.0)
        return a.lt(0.6).select(small, large).copysign(x)
    # -expm1(-2|x|) / (2 + expm1(-2|x|)), and 1 - 2 exp(-2|x|) / (1 + exp(-2|x|)) where that is near 1
    n, r = _reduced(_bounded(a * -2.0, -40.0, 0.0))
    p = (r * r).fma(r.polynomial(_EXP_F64), r)
    scale = _power_of_two(n)
    less, e = scale.fma(p, scale - 1.0), scale.fma(p, scale)
    late = a.gt(0.8)
    quotient = late.select(e * -2.0, -less) / late.select(e + 1.0, less + 2.0)
    return late.select(quotient + 1.0, quotient).copysign(x)


def logistic(x: ScalarExpr) -> ScalarExpr:
    e = exp(-x.abs())
    numerator = x.lt(0.0).select(e, 1.0)
    return numerator / (e + 1.0)


# --- powers ------------------------------------------------------------------------------------------------------


def pow(x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    """As C's pow."""
    if x.width == 64:
        high, low = _long_log(x.abs())
        exponent, lost = two_product(y, high)
        lost = exponent.abs().lt(1100.0).select(y.fma(low, lost), 0.0)
        magnitude = _scaled_exp(exponent, 0, lost)
        return _signed_power(x, y, magnitude)
    wide, power = x.to_f64(), y.to_f64()
    return _signed_power(wide, power, exp(power * log(wide.abs()))).result_f32()


def _long_log(x: ScalarExpr) -> DoubleDouble:
    """log of a non-negative f64 in two parts, to about 2^-66 of its value; the second counts where the first is
    finite."""
    e, f = _normal_log_parts(x)
    divisor = f + 2.0
    s = f / divisor
    # the rounding errors of the divisor and of the quotient
    s_low = ((-s).fma(divisor, f) - s * (f - (divisor - 2.0))) / divisor
    z, z_low = two_product(s, s)
    z_low = s.fma(s_low * 2.0, z_low)
    cube, cube_low = two_product(s, z)
    cube_low = cube_low + s.fma(z_low, s_low * z)
    third, third_low = two_product(cube, _TWO_THIRDS[0])
    third_low = third_low + cube.fma(_TWO_THIRDS[1], cube_low * _TWO_THIRDS[0])
    high, low = ordered_sum(e * _LN2_HIGH[64], s * 2.0)
    high, more = ordered_sum(high, third)
    tail = (cube * z).fma(z.polynomial(_LOG_TAIL), e * _LN2_LOW[64])
    high, low = ordered_sum(high, low + more + (s_low * 2.0 + third_low + tail))
    high = x.eq(0.0).select(-math.inf, high)
    return (x.is_nan() | x.eq(math.inf)).select(x, high), low


def _signed_power(x: ScalarExpr, y: ScalarExpr, magnitude: ScalarExpr) -> ScalarExpr:
    """x^y from |x|^y: signs, and the places at which the product of y and the logarithm means nothing."""
    whole = y.call("trunc").eq(y)
    half = y * 0.5
    odd = whole & half.call("trunc").ne(half)
    result = (x.bits().lt(0) & odd).select(-magnitude, magnitude)
    finite_base = x.lt(0.0) & x.gt(-math.inf)
    result = (finite_base & whole.ne(1)).select(math.nan, result)
    # (-1) ** +-inf and anything with |x| = 1: y * log(1) would be NaN for infinite y
    unit = x.abs().eq(1.0) & y.abs().eq(math.inf)
    return (unit | x.eq(1.0) | y.eq(0.0)).select(1.0, result)


# --- hyperbolic functions: f32 through f64 -------------------------------------------------------------------------


def _in_f64(formula: Callable[[ScalarExpr], ScalarExpr]) -> Callable[[ScalarExpr], ScalarExpr]:
    def function(x: ScalarExpr) -> ScalarExpr:
        return formula(x) if x.width == 64 else formula(x.to_f64()).result_f32()

    function.__name__ = formula.__name__
    return function


@_in_f64
def sinh(x: ScalarExpr) -> ScalarExpr:
    a = x.abs()
    z = a * a
    small = (a * z).fma(z.polynomial(_SINH), a)
    half = _scaled_exp(a, -1)
    return a.lt(1.0).select(small, half - 0.25 / half).copysign(x)


@_in_f64
def cosh(x: ScalarExpr) -> ScalarExpr:
    half = _scaled_exp(x.abs(), -1)
    return half + 0.25 / half


@_in_f64
def asinh(x: ScalarExpr) -> ScalarExpr:
    a = x.abs()
    square = a * a
    return _log1p_or_twice(a, a + square / ((square + 1.0).sqrt() + 1.0)).copysign(x)


@_in_f64
def acosh(x: ScalarExpr) -> ScalarExpr:
    t = x - 1.0
    return x.lt(1.0).select(math.nan, _log1p_or_twice(x, t + (t * t + t * 2.0).sqrt()))


def _log1p_or_twice(x: ScalarExpr, t: ScalarExpr) -> ScalarExpr:
    """log1p(t), and log(2 x) for large x, whose square would overflow in t."""
    large = x.gt(2.0**28)
    return log1p(large.select(x - 1.0, t)) + large.select(x.constant(math.log(2)), 0.0)


@_in_f64
def atanh(x: ScalarExpr) -> ScalarExpr:
    a = x.abs()
    return (log1p(a * 2.0 / (1.0 - a)) * 0.5).copysign(x)
