"""Sine, cosine, tangent and their inverses as straight-line code; accuracy as in docs/accuracy.md."""

from __future__ import annotations

import math

from llvmlite import ir

from distxla.compiler.lower.constant_tables import two_over_pi, two_over_pi_f64
from distxla.compiler.lower.double_double import two_product, two_sum
from distxla.compiler.lower.scalar_expression import F64T, ScalarExpr
from distxla.emit.native_function import I32, I64

# (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, on [-pi/4, pi/4]
_SIN_F32 = (-0.00019516976467136646, 0.008332175836976942, -0.16666654908429762)
_COS_F32 = (2.4438088745914093e-05, -0.001388736446328494, 0.04166664680665287)
_SIN_F64 = (
    1.5896631249934677e-10, -2.505075529663486e-08, 2.7557313674022146e-06, -0.00019841269829756351,
    0.008333333333322349, -0.16666666666666632,
)  # fmt: skip
_COS_F64 = (
    -1.1359162829618885e-11, 2.087571408769129e-09, -2.7557314286554717e-07, 2.4801587289262955e-05,
    -0.0013888888888873793, 0.041666666666666595,
)  # fmt: skip
# (atan(t) / t - 1) / t^2 in t^2, on [0, tan(pi/8)^2]
_ATAN = (
    -0.017922329980068645, 0.03807837559668656, -0.050398480418419433, 0.05848009574068695, -0.06663120489081678,
    0.076920616477733, -0.0909089783712841, 0.1111111078616402, -0.1428571428024907, 0.19999999999954088,
    -0.333333333333332,
)  # fmt: skip

_ROUNDER = 1.5 * 2.0**52
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_EIGHTH_TURNS = (
    (0.0, 0.0), (0.7853981633974483, 3.061616997868383e-17), _HALF_PI, (2.356194490192345, 9.184850993605148e-17),
    (3.141592653589793, 1.2246467991473532e-16),
)  # fmt: skip


def _quadrant(x: ScalarExpr) -> tuple[ScalarExpr, ScalarExpr]:
    """(quadrant as i32, r as f64 in [-pi/4, pi/4]) of an f32, exact enough for every finite argument.

    The bits of 2/pi that matter are looked up by exponent, in two parts: a 24-bit significand times the first part is
    exact in f64, and whole turns are already left out.
    """
    bits = x.bits()
    exponent = bits.lshr(23) & 0xFF
    significand = ((bits & 0x7FFFFF) | 0x800000) | 0
    significand = exponent.eq(0).select(bits & 0x7FFFFF, significand)
    builder = x.builder
    m = ScalarExpr(builder, builder.sitofp(significand.value, F64T))
    table = two_over_pi(builder.module)
    place = builder.zext(exponent.value, I64)
    parts = [_looked_up(builder, table, part, place) for part in range(2)]
    first = m * parts[0]
    shifted = m.fma(parts[1], first) + _ROUNDER
    fraction = m.fma(parts[1], first - (shifted - _ROUNDER))
    r = fraction * (math.pi / 2)
    q = shifted.bits().trunc(32)
    negative = bits.lt(0)
    special = exponent.eq(255)
    r = special.select(math.nan, r)
    return negative.select(-q, q), negative.select(-r, r)


def _looked_up(builder: ir.IRBuilder, table: ir.GlobalVariable, part: int, place: ir.Value) -> ScalarExpr:
    """table[part][place] of a table of doubles."""
    address = builder.gep(
        table,
        [ir.Constant(I32, 0), ir.Constant(I32, part), place],
        inbounds=True,
        source_etype=table.value_type,
    )
    return ScalarExpr(builder, builder.load(address, typ=F64T))


def _quadrant_f64(x: ScalarExpr) -> tuple[ScalarExpr, ScalarExpr, ScalarExpr]:
    """(quadrant as i64, r, r's rounding error) of |x|, r in [-pi/4, pi/4]; NaN for NaN and infinities.

    As for f32 2/pi comes by exponent, whole turns left out, in four parts of 53 bits: the multiple of pi/2 nearest to
    an f64 is 2^-61 away from it, so 170 bits of the quotient's fraction hold a correct remainder.
    """
    a = x.abs()
    builder = x.builder
    small = a.lt(0.5)
    bits = a.bits()
    exponent = bits.lshr(52)
    # 2^52 times the significand: an integer
    m = ((bits & ((1 << 52) - 1)) | (1075 << 52)).float_of_bits()
    place = exponent.call("umax", _FIRST).call("umin", 2046) - _FIRST
    table = two_over_pi_f64(builder.module)
    parts = [_looked_up(builder, table, part, place.value) for part in range(4)]
    (h0, l0), (h1, l1), (h2, l2) = (two_product(m, part) for part in parts[:3])
    turned = (h0 * 0.25).call("rint").fma(-4.0, h0)
    shifted = (turned + l0 + h1) + _ROUNDER
    head, e0 = two_sum(turned - (shifted - _ROUNDER), l0)
    head, e1 = two_sum(head, h1)
    tail, e2 = two_sum(e0, e1)
    tail, e3 = two_sum(tail, l1)
    tail, e4 = two_sum(tail, h2)
    head, tail = two_sum(head, tail)
    tail = tail + (m.fma(parts[3], l2) + (e2 + e3 + e4))
    r, lost = two_product(head, _HALF_PI[0])
    lost = lost + head.fma(_HALF_PI[1], tail * _HALF_PI[0])
    q = small.select(0, shifted.bits())
    finite = a.lt(math.inf)
    return q, finite.select(small.select(a, r), math.nan), small.select(0.0, lost)


_FIRST = 1021  # the biased exponent from which on the table is needed


def sin(x: ScalarExpr) -> ScalarExpr:
    if x.width == 64:
        return _signed(_sin_cos_f64(x, 0), x)
    q, r = _quadrant(x)
    # -0.0 and tiny arguments are their own sine
    result = _sin_cos(q, r.to_f32())
    return x.abs().lt(2.0**-12).select(x, result)


def cos(x: ScalarExpr) -> ScalarExpr:
    if x.width == 64:
        return _sin_cos_f64(x, 1)
    q, r = _quadrant(x)
    return _sin_cos(q + 1, r.to_f32())


def _signed(of_magnitude: ScalarExpr, x: ScalarExpr) -> ScalarExpr:
    """An odd function of x from its value at |x|."""
    return (of_magnitude.bits() ^ (x.bits() & (1 << 63))).float_of_bits()


def _sin_cos(q: ScalarExpr, r: ScalarExpr) -> ScalarExpr:
    """sin(q pi/2 + r)."""
    z = r * r
    sine = (r * z).fma(z.polynomial(_SIN_F32), r)
    cosine = (z * z).fma(z.polynomial(_COS_F32), z.fma(-0.5, 1.0))
    value = (q & 1).ne(0).select(cosine, sine)
    return (value.bits() ^ (q & 2).shl(30)).float_of_bits()


def _sine_cosine(r: ScalarExpr, lost: ScalarExpr) -> tuple[ScalarExpr, ScalarExpr]:
    """Of r + lost, |r| <= pi/4, in f64."""
    z = r * r
    half = z * 0.5
    sine = r + (r * z).fma(z.polynomial(_SIN_F64), half.fma(-lost, lost))
    most = 1.0 - half
    cosine = most + (((1.0 - most) - half) + (z * z).fma(z.polynomial(_COS_F64), -(r * lost)))
    return sine, cosine


def _sin_cos_f64(x: ScalarExpr, quadrants: int) -> ScalarExpr:
    """sin(|x| + quadrants pi/2)."""
    q, r, lost = _quadrant_f64(x)
    sine, cosine = _sine_cosine(r, lost)
    q = q + quadrants
    value = (q & 1).ne(0).select(cosine, sine)
    return (value.bits() ^ (q & 2).shl(62)).float_of_bits()


def tan(x: ScalarExpr) -> ScalarExpr:
    if x.width == 64:
        q, r, lost = _quadrant_f64(x)
        sine, cosine = _sine_cosine(r, lost)
        odd = (q & 1).ne(0)
        return _signed(odd.select(-cosine, sine) / odd.select(sine, cosine), x)
    q, r = _quadrant(x)
    z = r * r
    sine = (r * z).fma(z.polynomial(_SIN_F64), r)
    cosine = (z * z).fma(z.polynomial(_COS_F64), z.fma(-0.5, 1.0))
    odd = (q & 1).ne(0)
    result = odd.select(-cosine, sine) / odd.select(sine, cosine)
    return x.abs().lt(2.0**-12).select(x, result.result_f32())


def atan2(y: ScalarExpr, x: ScalarExpr) -> ScalarExpr:
    if y.width == 64:
        return _atan2_f64(y, x)
    return _atan2_f64(y.to_f64(), x.to_f64()).result_f32()


def _atan2_f64(y: ScalarExpr, x: ScalarExpr) -> ScalarExpr:
    ay, ax = y.abs(), x.abs()
    # so that the sum below does not overflow
    large = ay.gt(2.0**1022) | ax.gt(2.0**1022)
    scale = large.select(ay.constant(0.25), 1.0)
    ay, ax = ay * scale, ax * scale
    swap = ay.gt(ax)
    low, high = swap.select(ax, ay), swap.select(ay, ax)
    # beyond pi/8 the distance to pi/4
    late = low.gt(high * 0.41421356) | low.eq(math.inf)
    t = late.select(low - high, low) / late.select(low + high, high)
    # 0/0 is an angle of 0, inf/inf one of pi/4
    t = (low.eq(0.0) | low.eq(math.inf)).select(0.0, t)
    z = t * t
    angle = (t * z).fma(z.polynomial(_ATAN), t)
    # the sign bit, not the number: atan2(0, -0.0) is pi
    negative = x.bits().lt(0)
    backwards = negative ^ swap
    start = [
        late.select(negative.select(y.constant(three), one), swap.select(half, negative.select(y.constant(two), zero)))
        for zero, one, half, three, two in zip(*_EIGHTH_TURNS)
    ]
    angle = (start[0] + (backwards.select(-angle, angle) + start[1])).copysign(y)
    return (x.is_nan() | y.is_nan()).select(math.nan, angle)


def asin(x: ScalarExpr) -> ScalarExpr:
    wide = x.to_f64()
    angle = wide.eq(0.0).select(wide, _atan2_f64(wide, _leg(wide)))
    return angle if x.width == 64 else angle.result_f32()


def acos(x: ScalarExpr) -> ScalarExpr:
    wide = x.to_f64()
    angle = _atan2_f64(_leg(wide), wide)
    return angle if x.width == 64 else angle.result_f32()


def _leg(x: ScalarExpr) -> ScalarExpr:
    """sqrt(1 - x^2); NaN outside of [-1, 1]."""
    return ((1.0 - x) * (x + 1.0)).sqrt()
