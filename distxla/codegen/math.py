"""Elementary functions as straight-line code: no calls, no branches, so that loops around them vectorise.

Bounds are in units in the last place of the result over all finite arguments, subnormal results included; NaN gives
NaN,
infinities and signed zeros give what IEEE 754 and XLA say. f32 results with a bound of 0.6 are computed in f64. The
polynomials are least-maximum fits made for these intervals.

    function         f32    f64          function         f32    f64
    exp              1.1    1.0          sin, cos         1.6    library
    expm1            1.6    1.9          tan              0.6    library
    log              0.8    0.8          erf              2.5    library
    log1p            0.8    0.8          atan2, pow       0.6    library
    tanh             5.0    2.6          asin … atanh     0.6    library
    logistic         2.4    2.4          cbrt             0.6    library
    rsqrt            1.5    1.5

"library" is the C library's own function, called once an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from distxla.codegen.lane import F64T, I32, Lane
from distxla.codegen.tables import two_over_pi

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
# tanh(x) / x as a quotient of polynomials in x^2, on [0, 9.02]
_TANH_ABOVE = (
    -1.2203373855959185e-11, 3.0584979597212433e-08, 2.8007472549437563e-05, 0.0038683294531240407, 0.1367991671709631,
    1.0,
)  # fmt: skip
_TANH_BELOW = (1.2873665129150095e-06, 0.0003938633370023439, 0.0272458459771871, 0.47013248781331474, 1.0)
# erf(x) / x in x^2 on [0, 1]; -log(erfc(x)) on [1, 4]
_ERF_SMALL = (
    -9.641515870263199e-06, 0.00011256947825996563, -0.000848282883263608, 0.005220945431858351, -0.026865400041768763,
    0.11283781974098417, -0.37612638434650514, 1.128379167058022,
)  # fmt: skip
_ERF_LARGE = (
    2.1686849961794722e-05, -0.00044133637711453965, 0.004204561873640438, -0.02520825673596122, 0.10841857732831325,
    0.633219893094907, 1.1295784242598779, -0.00018804022765157424,
)  # fmt: skip
# atan(t) / t in t^2 on [0, 1], to 2e-12
_ATAN = (
    -0.0002808402998882045, 0.002255628301942712, -0.008509698550497312, 0.020387383753579603, -0.035755457438045445,
    0.050812563611231536, -0.06384033696094159, 0.07620423883065536, -0.09078223087779133, 0.11109639409693925,
    -0.1428561102515248, 0.19999996196131947, -0.3333333327795307, 0.9999999999986615,
)  # fmt: skip

_LN2_HIGH = {32: 0.693359375, 64: 6.93147180369123816490e-01}
_LN2_LOW = {32: -2.12194440e-4, 64: 1.90821492927058770002e-10}
_ROUNDER = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}


def _bounded(x: Lane, low: float, high: float) -> Lane:
    """x within [low, high]; NaN stays NaN."""
    x = x.lt(low).select(low, x)
    return x.gt(high).select(high, x)


def _reduced(x: Lane) -> tuple[Lane, Lane, Lane]:
    """(n as an integer, n, r) with x = n ln2 + r, |r| <= ln2 / 2 and a bit; no undefined conversion for NaN."""
    rounder = x.constant(_ROUNDER[x.width])
    shifted = x.fma(math.log2(math.e), rounder)
    n = shifted - rounder
    r = n.fma(-_LN2_HIGH[x.width], x)
    r = n.fma(-_LN2_LOW[x.width], r)
    return shifted.bits() - rounder.bits(), n, r


def _power_of_two(n: Lane) -> Lane:
    """2.0 ** n for an integer lane within the exponents of normal numbers."""
    mantissa, bias = (23, 127) if n.width == 32 else (52, 1023)
    return (n + bias).shl(mantissa).float_of_bits()


def exp(x: Lane) -> Lane:
    limits = (-104.0, 89.0) if x.width == 32 else (-746.0, 710.0)
    n, _, r = _reduced(_bounded(x, *limits))
    q = r.polynomial(_EXP_F32 if x.width == 32 else _EXP_F64)
    p = (r * r).fma(q, r) + 1.0
    # in two factors, so that neither overflows before the product does, and subnormal results round once
    half = n.ashr(1)
    return p * _power_of_two(half) * _power_of_two(n - half)


def expm1(x: Lane) -> Lane:
    limits = (-20.0, 89.0) if x.width == 32 else (-40.0, 710.0)
    n, _, r = _reduced(_bounded(x, *limits))
    q = r.polynomial(_EXP_F32 if x.width == 32 else _EXP_F64)
    p = (r * r).fma(q, r)
    half = _power_of_two(n - 1)
    total = half.fma(p, half - 0.5) * 2.0
    # r rounds tiny arguments away
    tiny = x.abs().lt(2.0**-30 if x.width == 32 else 2.0**-60)
    return tiny.select(x, total)


def _log_parts(x: Lane) -> tuple[Lane, Lane]:
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


def _log_sum(e: Lane, f: Lane, correction: Lane | None = None) -> Lane:
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


def log(x: Lane) -> Lane:
    smallest, scale, shift = (2.0**-126, 2.0**25, 25.0) if x.width == 32 else (2.0**-1022, 2.0**54, 54.0)
    subnormal = x.lt(smallest)
    scaled = subnormal.select(x * scale, x)
    e, f = _log_parts(scaled)
    e = subnormal.select(e - shift, e)
    result = _log_sum(e, f)
    result = x.eq(0.0).select(-math.inf, result)
    result = x.lt(0.0).select(math.nan, result)
    keep = Lane(x.builder, x.builder.fcmp_unordered("==", x.value, x.constant(math.inf).value))
    return keep.select(x, result)


def log1p(x: Lane) -> Lane:
    u = x + 1.0
    e, f = _log_parts(u)
    # what rounding 1 + x lost
    lost = x.gt(1.0).select(1.0 - (u - x), x - (u - 1.0))
    result = _log_sum(e, f, lost / u)
    result = x.eq(-1.0).select(-math.inf, result)
    result = x.lt(-1.0).select(math.nan, result)
    tiny = x.abs().lt(2.0**-30 if x.width == 32 else 2.0**-60)
    keep = Lane(x.builder, x.builder.fcmp_unordered("==", x.value, x.constant(math.inf).value))
    return Lane(x.builder, x.builder.or_(keep.value, tiny.value)).select(x, result)


def tanh(x: Lane) -> Lane:
    if x.width == 32:
        return _tanh_f32(x)
    # -expm1(-2|x|) / (expm1(-2|x|) + 2)
    e = _expm1_negative(x.abs() * -2.0)
    return (-e / (e + 2.0)).copysign(x)


def _tanh_f32(x: Lane) -> Lane:
    """A rational function: half the instructions of the exponential form."""
    a = x.abs()
    large = a.gt(9.01)
    a = large.select(9.01, a)
    z = a * a
    ratio = a * z.polynomial(_TANH_ABOVE) / z.polynomial(_TANH_BELOW)
    one = Lane(x.builder, x.builder.or_(large.value, ratio.gt(1.0).value))
    return one.select(1.0, ratio).copysign(x)


def _expm1_negative(x: Lane) -> Lane:
    """expm1 for x <= 0 or NaN; tiny arguments come out exactly."""
    low = -20.0 if x.width == 32 else -40.0
    x = x.lt(low).select(low, x)
    n, _, r = _reduced(x)
    p = (r * r).fma(r.polynomial(_EXP_F32 if x.width == 32 else _EXP_F64), r)
    scale = _power_of_two(n)
    return scale.fma(p, scale - 1.0)


def logistic(x: Lane) -> Lane:
    e = exp(-x.abs())
    numerator = x.lt(0.0).select(e, 1.0)
    return numerator / (e + 1.0)


def erf(x: Lane) -> Lane:
    if x.width == 64:
        return x.library("erf")
    a = x.abs()
    small = x * (x * x).polynomial(_ERF_SMALL)
    bounded = a.gt(4.0).select(4.0, a)
    large = (1.0 - exp(-bounded.polynomial(_ERF_LARGE))).copysign(x)
    return a.lt(1.0).select(small, large)


# --- trigonometry ------------------------------------------------------------------------------------------------


def _quadrant(x: Lane) -> tuple[Lane, Lane]:
    """(quadrant as i32, r as f64 in [-pi/4, pi/4]) of an f32, exact enough for every finite argument.

    The bits of 2/pi that matter are looked up by exponent, in two parts: a 24-bit significand times the first part is
    exact in f64, and whole turns are already left out.
    """
    bits = x.bits()
    exponent = bits.lshr(23) & 0xFF
    significand = ((bits & 0x7FFFFF) | 0x800000) | 0
    significand = exponent.eq(0).select(bits & 0x7FFFFF, significand)
    builder = x.builder
    m = Lane(builder, builder.sitofp(significand.value, F64T))
    table = two_over_pi(builder.module)
    place = builder.zext(exponent.value, ir.IntType(64))
    parts = []
    for part in range(2):
        address = builder.gep(
            table,
            [ir.Constant(I32, 0), ir.Constant(I32, part), place],
            inbounds=True,
            source_etype=ir.ArrayType(ir.ArrayType(F64T, 256), 2),
        )
        parts.append(Lane(builder, builder.load(address, typ=F64T)))
    first = m * parts[0]
    rounder = first.constant(_ROUNDER[64])
    shifted = m.fma(parts[1], first) + rounder
    fraction = m.fma(parts[1], first - (shifted - rounder))
    r = fraction * (math.pi / 2)
    q = shifted.bits().trunc(32)
    negative = bits.lt(0)
    special = exponent.eq(255)
    r = special.select(math.nan, r)
    return negative.select(-q, q), negative.select(-r, r)


def sin(x: Lane) -> Lane:
    if x.width == 64:
        return x.library("sin")
    q, r = _quadrant(x)
    # -0.0 and tiny arguments are their own sine
    result = _sin_cos(q, r.to_f32())
    return x.abs().lt(2.0**-12).select(x, result)


def cos(x: Lane) -> Lane:
    if x.width == 64:
        return x.library("cos")
    q, r = _quadrant(x)
    return _sin_cos(q + 1, r.to_f32())


def _sin_cos(q: Lane, r: Lane) -> Lane:
    """sin(q pi/2 + r)."""
    z = r * r
    sine = (r * z).fma(z.polynomial(_SIN_F32), r)
    cosine = (z * z).fma(z.polynomial(_COS_F32), z.fma(-0.5, 1.0))
    value = (q & 1).ne(0).select(cosine, sine)
    return (value.bits() ^ (q & 2).shl(30)).float_of_bits()


def tan(x: Lane) -> Lane:
    if x.width == 64:
        return x.library("tan")
    q, r = _quadrant(x)
    z = r * r
    sine = (r * z).fma(z.polynomial(_SIN_F64), r)
    cosine = (z * z).fma(z.polynomial(_COS_F64), z.fma(-0.5, 1.0))
    odd = (q & 1).ne(0)
    result = odd.select(-cosine, sine) / odd.select(sine, cosine)
    return x.abs().lt(2.0**-12).select(x, result.result_f32())


def atan2(y: Lane, x: Lane) -> Lane:
    if y.width == 64:
        return y.library("atan2", x)
    return _atan2_f64(y.to_f64(), x.to_f64()).result_f32()


def _atan2_f64(y: Lane, x: Lane) -> Lane:
    """f64 in and out, but only as exact as an f32 result needs."""
    b = y.builder
    ay, ax = y.abs(), x.abs()
    swap = ay.gt(ax)
    low, high = swap.select(ax, ay), swap.select(ay, ax)
    # 0/0 is an angle of 0, inf/inf one of pi/4
    t = low.eq(0.0).select(0.0, low.eq(math.inf).select(1.0, low / high))
    z = t * t
    angle = t * z.polynomial(_ATAN)
    angle = swap.select(math.pi / 2 - angle, angle)
    # the sign bit, not the number: atan2(0, -0.0) is pi
    negative = x.bits().lt(0)
    angle = negative.select(math.pi - angle, angle).copysign(y)
    bad = Lane(b, b.fcmp_unordered("uno", x.value, y.value))
    return bad.select(math.nan, angle)


# --- the rest: f32 through f64, f64 through the library ------------------------------------------------------------


def _through_f64(name: str, formula: Callable[[Lane], Lane]) -> Callable[[Lane], Lane]:
    def function(x: Lane) -> Lane:
        return x.library(name) if x.width == 64 else formula(x.to_f64()).result_f32()

    function.__name__ = name
    return function


def _asin(x: Lane) -> Lane:
    return x.eq(0.0).select(x, _atan2_f64(x, _leg(x)))


def _leg(x: Lane) -> Lane:
    """sqrt(1 - x^2); NaN outside of [-1, 1]."""
    return ((1.0 - x) * (x + 1.0)).sqrt()


def _sinh(x: Lane) -> Lane:
    e = expm1(x.abs())
    # (e + e/(e+1)) / 2, where e may be infinite
    return x.eq(0.0).select(x, e.gt(1e300).select(e, (e + e / (e + 1.0)) * 0.5).copysign(x))


def _cosh(x: Lane) -> Lane:
    e = exp(x.abs())
    return (e + 1.0 / e) * 0.5


def _asinh(x: Lane) -> Lane:
    a = x.abs()
    square = a * a
    grown = a.eq(math.inf).select(0.0, square / ((square + 1.0).sqrt() + 1.0))
    return log1p(a + grown).copysign(x)


def _acosh(x: Lane) -> Lane:
    t = x - 1.0
    return x.lt(1.0).select(math.nan, log1p(t + (t * t + t * 2.0).sqrt()))


def _atanh(x: Lane) -> Lane:
    a = x.abs()
    return (log1p(a * 2.0 / (1.0 - a)) * 0.5).copysign(x)


def _cbrt(x: Lane) -> Lane:
    a = x.abs()
    root = exp(log(a) * (1.0 / 3.0))
    keep = Lane(x.builder, x.builder.or_(a.eq(0.0).value, a.eq(math.inf).value))
    return keep.select(x, root.copysign(x))


asin = _through_f64("asin", _asin)
acos = _through_f64("acos", lambda x: _atan2_f64(_leg(x), x))
sinh = _through_f64("sinh", _sinh)
cosh = _through_f64("cosh", _cosh)
asinh = _through_f64("asinh", _asinh)
acosh = _through_f64("acosh", _acosh)
atanh = _through_f64("atanh", _atanh)
cbrt = _through_f64("cbrt", _cbrt)


def rsqrt(x: Lane) -> Lane:
    """1 ULP for f64; correctly rounded but for double rounding for f32."""
    return 1.0 / x.sqrt()


def pow(x: Lane, y: Lane) -> Lane:
    """As C's pow."""
    if x.width == 64:
        return x.library("pow", y)
    return _pow_f64(x.to_f64(), y.to_f64()).result_f32()


def _pow_f64(x: Lane, y: Lane) -> Lane:
    b = x.builder
    a = x.abs()
    magnitude = exp(y * log(a))
    whole = y.call("trunc").eq(y)
    half = y * 0.5
    odd = Lane(b, b.and_(whole.value, half.call("trunc").ne(half).value))
    negative = Lane(b, b.and_(x.bits().lt(0).value, odd.value))
    result = negative.select(-magnitude, magnitude)
    finite_base = Lane(b, b.and_(x.lt(0.0).value, x.gt(-math.inf).value))
    result = Lane(b, b.and_(finite_base.value, whole.ne(1).value)).select(math.nan, result)
    # (-1) ** +-inf and anything with |x| = 1: y * log(1) would be NaN for infinite y
    unit = Lane(b, b.and_(a.eq(1.0).value, y.abs().eq(math.inf).value))
    result = unit.select(1.0, result)
    one = Lane(b, b.or_(x.eq(1.0).value, y.eq(0.0).value))
    return one.select(1.0, result)


def remainder(x: Lane, y: Lane) -> Lane:
    """C's fmod: exact, with the dividend's sign. A library call: the number of its steps depends on the operands."""
    return x.library("fmod", y)


def round_away(x: Lane) -> Lane:
    """To the nearest integral number, halves away from zero."""
    towards = x.call("trunc")
    away = (x - towards).abs().ge(0.5)
    return away.select(towards + x.constant(1.0).copysign(x), towards).copysign(x)


FUNCTIONS: dict[str, Callable[[Lane], Lane]] = {
    "exponential": exp,
    "exponential-minus-one": expm1,
    "log": log,
    "log-plus-one": log1p,
    "tanh": tanh,
    "logistic": logistic,
    "erf": erf,
    "sine": sin,
    "cosine": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "cbrt": cbrt,
    "sqrt": Lane.sqrt,
    "rsqrt": rsqrt,
    "floor": lambda x: x.call("floor"),
    "ceil": lambda x: x.call("ceil"),
    "round-nearest-even": lambda x: x.call("roundeven"),
    "round-nearest-afz": round_away,
}
