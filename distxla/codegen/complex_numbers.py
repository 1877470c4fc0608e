"""Element-wise opcodes of complex numbers, in Cartesian parts; products and quotients as C's without its recovery of
infinities.

Elementary functions of c64 are computed in f64 parts and rounded, those of c128 in f64 with the library's sine and
cosine.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Callable
from typing import TYPE_CHECKING

from distxla.codegen import math
from distxla.codegen.lane import F32T, Lane
from distxla.codegen.value import ScalarValue
from distxla.errors import InternalError

if TYPE_CHECKING:
    from distxla.codegen.emitter import ScalarEmitter

Pair = tuple[Lane, Lane]


def unary(emit: ScalarEmitter, opcode: str, a: ScalarValue) -> ScalarValue:
    """Any element-wise unary opcode of a complex number."""
    kind = a.element_type
    assert a.imag is not None
    x, y = emit.lane(a.llvm), emit.lane(a.imag)
    if opcode == "real":
        return ScalarValue(kind.real_part, a.llvm)
    if opcode == "imag":
        return ScalarValue(kind.real_part, a.imag)
    if opcode == "negate":
        return ScalarValue(kind, (-x).value, (-y).value)
    narrow = x.type == F32T
    wide = (x.to_f64(), y.to_f64())
    if opcode == "abs":
        modulus = _abs(wide)
        return ScalarValue(kind.real_part, (modulus.result_f32() if narrow else modulus).value)
    function = _UNARY.get(opcode)
    if function is None:
        raise InternalError(f"no unary {opcode} of {kind}")
    real, imag = function(wide)
    if narrow:
        real, imag = real.result_f32(), imag.result_f32()
    return ScalarValue(kind, real.value, imag.value)


def binary(emit: ScalarEmitter, opcode: str, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """Any element-wise binary opcode of complex numbers."""
    kind = a.element_type
    assert a.imag is not None
    assert b.imag is not None
    x = (emit.lane(a.llvm), emit.lane(a.imag))
    y = (emit.lane(b.llvm), emit.lane(b.imag))
    builder = emit.builder
    flags = ("reassoc",) if emit.reassociate else ()
    if opcode == "add":
        parts = [builder.fadd(p, q, flags=flags) for p, q in zip(a.registers(), b.registers())]
        return ScalarValue(kind, *parts)
    if opcode == "subtract":
        return _value(kind, (x[0] - y[0], x[1] - y[1]))
    if opcode == "multiply":
        return _value(kind, _multiply(x, y))
    if opcode in ("maximum", "minimum"):
        return _extreme(emit, opcode == "maximum", a, b)
    narrow = x[0].type == F32T
    u, v = (x[0].to_f64(), x[1].to_f64()), (y[0].to_f64(), y[1].to_f64())
    function = {"divide": _divide, "power": _power, "atan2": _atan2}.get(opcode)
    if function is None:
        raise InternalError(f"no binary {opcode} of {kind}")
    real, imag = function(u, v)
    return _value(kind, (real.result_f32(), imag.result_f32()) if narrow else (real, imag))


def _value(kind: object, parts: Pair) -> ScalarValue:
    return ScalarValue(kind, parts[0].value, parts[1].value)  # type: ignore[arg-type]


def _extreme(emit: ScalarEmitter, larger: bool, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """By the parts in order, as NumPy; a NaN anywhere in an operand wins."""
    builder = emit.builder
    (x, s), (y, t) = ([emit.lane(r) for r in v.registers()] for v in (a, b))
    first = x.gt(y) if larger else x.lt(y)
    second = s.gt(t) if larger else s.lt(t)
    chosen = builder.or_(first.value, builder.and_(x.eq(y).value, second.value))
    chosen = builder.or_(chosen, builder.fcmp_unordered("uno", a.llvm, a.imag))
    bad = builder.and_(builder.fcmp_unordered("uno", b.llvm, b.imag), builder.fcmp_ordered("ord", a.llvm, a.imag))
    chosen = builder.and_(chosen, builder.not_(bad))
    parts = [builder.select(chosen, p, q) for p, q in zip(a.registers(), b.registers())]
    return ScalarValue(a.element_type, *parts)


def _multiply(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _divide(x: Pair, y: Pair) -> Pair:
    """Scaled by the larger part of the divisor, so that its square can't overflow."""
    c, d = y
    scale = c.abs().call("maxnum", d.abs())
    usable = scale.gt(0.0).select(scale.lt(numbers.inf).select(scale, 1.0), 1.0)
    c, d = c / usable, d / usable
    square = c * c + d * d
    # an infinite divisor gives 0 for finite dividends
    real, imag = (x[0] * c + x[1] * d) / square / usable, (x[1] * c - x[0] * d) / square / usable
    builder = c.builder
    infinite = scale.eq(numbers.inf)
    finite = c.of(builder.and_(x[0].abs().lt(numbers.inf).value, x[1].abs().lt(numbers.inf).value))
    zero = c.of(builder.and_(infinite.value, finite.value))
    return zero.select(0.0, real), zero.select(0.0, imag)


def _abs(x: Pair) -> Lane:
    """Without overflow or underflow of the squares."""
    a, b = x[0].abs(), x[1].abs()
    larger, smaller = a.call("maximum", b), a.call("minimum", b)
    ratio = larger.eq(0.0).select(0.0, smaller / larger)
    modulus = larger * (ratio * ratio + 1.0).sqrt()
    builder = a.builder
    infinite = a.of(builder.or_(a.eq(numbers.inf).value, b.eq(numbers.inf).value))
    return infinite.select(numbers.inf, modulus)


def _exp(x: Pair) -> Pair:
    e = math.exp(x[0])
    real = x[1].eq(0.0)
    return e * math.cos(x[1]), real.select(x[1], e * math.sin(x[1]))


def _log(x: Pair) -> Pair:
    return math.log(_abs(x)), math.atan2(x[1], x[0])


def _sqrt(x: Pair) -> Pair:
    """The principal root; the imaginary part keeps the operand's sign."""
    modulus = _abs(x)
    t = ((x[0].abs() + modulus) * 0.5).sqrt()
    other = t.eq(0.0).select(0.0, x[1].abs() / (t * 2.0))
    negative = x[0].lt(0.0)
    real, imag = negative.select(other, t), negative.select(t, other)
    return real, imag.copysign(x[1])


def _power(x: Pair, y: Pair) -> Pair:
    zero = x[0].of(x[0].builder.and_(x[0].eq(0.0).value, x[1].eq(0.0).value))
    none = x[0].of(x[0].builder.and_(y[0].eq(0.0).value, y[1].eq(0.0).value))
    real, imag = _exp(_multiply(y, _log(x)))
    unit = none.select(x[0].constant(1.0), 0.0)
    return zero.select(unit, real), zero.select(0.0, imag)


def _atan2(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    xx, yy = _multiply(x, x), _multiply(y, y)
    root = _sqrt((xx[0] + yy[0], xx[1] + yy[1]))
    real, imag = _log(_divide((x[0] - y[1], x[1] + y[0]), root))
    return imag, -real


def _sin_cos_hyperbolic(x: Pair) -> tuple[Lane, Lane, Lane, Lane]:
    return math.sin(x[0]), math.cos(x[0]), math.sinh(x[1]), math.cosh(x[1])


def _sin(x: Pair) -> Pair:
    s, c, sh, ch = _sin_cos_hyperbolic(x)
    return s * ch, c * sh


def _cos(x: Pair) -> Pair:
    s, c, sh, ch = _sin_cos_hyperbolic(x)
    return c * ch, -(s * sh)


def _turned(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """f(x) = -i g(i x)."""

    def turned(x: Pair) -> Pair:
        real, imag = function((-x[1], x[0]))
        return imag, -real

    return turned


def _tanh(x: Pair) -> Pair:
    # sinh(2a) / (cosh(2a) + cos(2b)), without overflow for large a
    a, b = x
    t = math.tanh(a)
    tangent = math.tan(b)
    squares = (t * t) * (tangent * tangent) + 1.0
    return t * (tangent * tangent + 1.0) / squares, tangent * (1.0 - t * t) / squares


def _expm1(x: Pair) -> Pair:
    half = math.sin(x[1] * 0.5)
    grown = math.expm1(x[0])
    real = grown * math.cos(x[1]) - half * half * 2.0
    return real, math.exp(x[0]) * math.sin(x[1])


def _log1p(x: Pair) -> Pair:
    a, b = x
    # log|1 + x| = log1p(2a + a^2 + b^2) / 2 near 0
    near = a.abs().call("maximum", b.abs()).lt(0.5)
    close = math.log1p(a * 2.0 + a * a + b * b) * 0.5
    return near.select(close, math.log(_abs((a + 1.0, b)))), math.atan2(b, a + 1.0)


def _logistic(x: Pair) -> Pair:
    real, imag = _exp((-x[0], -x[1]))
    one = x[0].constant(1.0)
    return _divide((one, x[0].constant(0.0)), (real + 1.0, imag))


def _sign(x: Pair) -> Pair:
    modulus = _abs(x)
    zero = modulus.eq(0.0)
    return zero.select(0.0, x[0] / modulus), zero.select(0.0, x[1] / modulus)


def _cbrt(x: Pair) -> Pair:
    real, imag = _log(x)
    zero = _abs(x).eq(0.0)
    root = _exp((real * (1.0 / 3.0), imag * (1.0 / 3.0)))
    return zero.select(0.0, root[0]), zero.select(0.0, root[1])


def _reciprocal_root(x: Pair) -> Pair:
    one = x[0].constant(1.0)
    return _divide((one, x[0].constant(0.0)), _sqrt(x))


def _asinh(x: Pair) -> Pair:
    """log(x + sqrt(x^2 + 1)), for the half plane in which nothing cancels."""
    negative = x[0].lt(0.0)
    a, b = negative.select(-x[0], x[0]), negative.select(-x[1], x[1])
    square = _multiply((a, b), (a, b))
    root = _sqrt((square[0] + 1.0, square[1]))
    real, imag = _log((a + root[0], b + root[1]))
    return negative.select(-real, real), negative.select(-imag, imag)


def _acosh(x: Pair) -> Pair:
    """log(x + sqrt(x + 1) sqrt(x - 1))."""
    root = _multiply(_sqrt((x[0] + 1.0, x[1])), _sqrt((x[0] - 1.0, x[1])))
    return _log((x[0] + root[0], x[1] + root[1]))


def _atanh(x: Pair) -> Pair:
    """(log1p(x) - log1p(-x)) / 2."""
    above, below = _log1p(x), _log1p((-x[0], -x[1]))
    return (above[0] - below[0]) * 0.5, (above[1] - below[1]) * 0.5


def _acos(x: Pair) -> Pair:
    """pi/2 - asin(x)."""
    real, imag = _turned(_asinh)(x)
    return numbers.pi / 2 - real, -imag


def _tan(x: Pair) -> Pair:
    return _turned(_tanh)(x)


_UNARY: dict[str, Callable[[Pair], Pair]] = {
    "exponential": _exp,
    "exponential-minus-one": _expm1,
    "log": _log,
    "log-plus-one": _log1p,
    "logistic": _logistic,
    "sqrt": _sqrt,
    "rsqrt": _reciprocal_root,
    "cbrt": _cbrt,
    "sine": _sin,
    "cosine": _cos,
    "tan": _tan,
    "tanh": _tanh,
    "sinh": _turned(_sin),
    "cosh": lambda x: _cos((-x[1], x[0])),
    "asin": _turned(_asinh),
    "acos": _acos,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "sign": _sign,
}
