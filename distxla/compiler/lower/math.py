"""Elementary functions as straight-line code: no calls, no branches, so that loops around them vectorise.

NaN gives NaN, infinities and signed zeros give the values of IEEE 754, C and XLA. The largest error of each function is
measured by tests/compiler/lower/test_math.py and stated in docs/accuracy.md. The polynomials are least-maximum fits
for their intervals. Only the remainder is the C library's own function, called once an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from distxla.compiler.lower.exponentials import (
    acosh,
    asinh,
    atanh,
    cosh,
    exp,
    expm1,
    log,
    log1p,
    logistic,
    pow,
    sinh,
    tanh,
)
from distxla.compiler.lower.scalar_expression import ScalarExpr
from distxla.compiler.lower.trigonometry import acos, asin, atan2, cos, sin, tan

# erf(x) / x in x^2 on [0, 1]; -log(erfc(x)) on [1, 4]
_ERF_SMALL = (
    -9.641515870263199e-06, 0.00011256947825996563, -0.000848282883263608, 0.005220945431858351, -0.026865400041768763,
    0.11283781974098417, -0.37612638434650514, 1.128379167058022,
)  # fmt: skip
_ERF_LARGE = (
    2.1686849961794722e-05, -0.00044133637711453965, 0.004204561873640438, -0.02520825673596122, 0.10841857732831325,
    0.633219893094907, 1.1295784242598779, -0.00018804022765157424,
)  # fmt: skip
# for f64: erf(x) / x - 1 in x^2; -log(erfc(x)) - x^2 in (2 x - 7) / 5 on [1, 6]
_ERF_SMALL_F64 = (
    5.960685338518165e-11, -1.1374955736068398e-09, 1.4660328722741778e-08, -1.635039622286454e-07,
    1.6461008477802694e-06, -1.4925595772180904e-05, 0.0001205533113295582, -0.0008548326981425542,
    0.005223977624828431, -0.026866170645077875, 0.11283791670954885, -0.3761263890318375, 0.1283791670955126,
)  # fmt: skip
_ERF_LARGE_F64 = (
    2.830353291071708e-05, 0.00020345577008020418, 0.0006340592401784833, 0.001170141126888272, 0.001352743353587743,
    0.000996335321345974, 0.00040858456351644263, -0.00010479308738311181, 0.00019973914756018927,
    -0.000952556267247519, 0.0023608643500845857, -0.005953082328806292, 0.014385618441684414, -0.03412817568515654,
    0.08165092416963687, -0.20779340960320997, 0.6652489706556677, 1.8624374021415644,
)  # fmt: skip
# r^(-1/3) on [0.89, 1.12]
_CUBE_ROOT = (0.1434767297136796, -0.7487991894396119, 1.607774572861365, -1.8763850738250105, 1.873932942630113)
_CUBE_ROOT_START = 715092163  # added to a third of the upper half of an f64's bits: its cube root to 4 %


def erf(x: ScalarExpr) -> ScalarExpr:
    a = x.abs()
    if x.width == 64:
        small = (a * a).polynomial(_ERF_SMALL_F64).fma(x, x)
        bounded = a.gt(6.0).select(6.0, a)
        exponent = bounded.fma(bounded, bounded.fma(0.4, -1.4).polynomial(_ERF_LARGE_F64))
    else:
        small = x * (x * x).polynomial(_ERF_SMALL)
        bounded = a.gt(4.0).select(4.0, a)
        exponent = bounded.polynomial(_ERF_LARGE)
    return a.lt(1.0).select(small, (1.0 - exp(-exponent)).copysign(x))


def cbrt(x: ScalarExpr) -> ScalarExpr:
    wide = x.to_f64()
    root = _cbrt_f64(wide)
    return root if x.width == 64 else root.result_f32()


def _cbrt_f64(x: ScalarExpr) -> ScalarExpr:
    """A third of the exponent, a polynomial, and one step of Halley's iteration from a number with an exact square."""
    a = x.abs()
    subnormal = a.lt(2.0**-1022)
    number = subnormal.select(a * 2.0**54, a)
    third = (number.bits().lshr(32) * 0x55555556).lshr(32)
    root = (third + _CUBE_ROOT_START).shl(32).float_of_bits()
    root = root * (root * root * (root / number)).polynomial(_CUBE_ROOT)
    root = ((root.bits() + (1 << 27)) & ~((1 << 28) - 1)).float_of_bits()
    quotient = number / (root * root)
    root = root.fma((quotient - root) / (root * 2.0 + quotient), root)
    root = subnormal.select(root * 2.0**-18, root).copysign(x)
    return (a.eq(0.0) | a.eq(math.inf) | a.is_nan()).select(x, root)


def rsqrt(x: ScalarExpr) -> ScalarExpr:
    return 1.0 / x.sqrt()


def remainder(x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    """C's fmod: exact, with the dividend's sign. A library call: the number of its steps depends on the operands."""
    return x.library("fmod", y)


def round_away(x: ScalarExpr) -> ScalarExpr:
    """To the nearest integral number, halves away from zero."""
    towards = x.call("trunc")
    away = (x - towards).abs().ge(0.5)
    return away.select(towards + x.constant(1.0).copysign(x), towards).copysign(x)


FUNCTIONS: dict[str, Callable[[ScalarExpr], ScalarExpr]] = {
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
    "sqrt": ScalarExpr.sqrt,
    "rsqrt": rsqrt,
    "floor": lambda x: x.call("floor"),
    "ceil": lambda x: x.call("ceil"),
    "round-nearest-even": lambda x: x.call("roundeven"),
    "round-nearest-afz": round_away,
}
BINARY_FUNCTIONS: dict[str, Callable[[ScalarExpr, ScalarExpr], ScalarExpr]] = {
    "power": pow,
    "atan2": atan2,
    "remainder": remainder,
}
