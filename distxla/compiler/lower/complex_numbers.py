"""Element-wise opcodes of complex numbers, in Cartesian parts.

Special values, zeros' signs among them, follow C's Annex G where it says something: for the quotient and every
function that C has. A product is the plain formula of four products, as XLA has it, without C's recovery of infinities.
Everything but sums and products of c64 is computed in f64 and rounded.
"""

from __future__ import annotations

import math as numbers

from distxla.compiler.lower.complex_functions import (
    UNARY,
    ComplexParts,
    absolute,
    atan,
    exp,
    log,
    multiply,
    quotient,
    sqrt,
    squarable,
)
from distxla.compiler.lower.double_double import two_product
from distxla.compiler.lower.scalar_code import ScalarCode
from distxla.compiler.lower.scalar_expression import F32T, ScalarExpr
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.errors import InternalError
from distxla.ir.element_type import ElementType


def unary(emit: ScalarCode, opcode: str, a: ScalarValue) -> ScalarValue:
    """Any element-wise unary opcode of a complex number."""
    kind = a.element_type
    assert a.imag is not None
    x, y = emit.expr(a.llvm), emit.expr(a.imag)
    if opcode == "real":
        return ScalarValue(kind.real_part, a.llvm)
    if opcode == "imag":
        return ScalarValue(kind.real_part, a.imag)
    if opcode == "negate":
        return ScalarValue(kind, (-x).value, (-y).value)
    narrow = x.type == F32T
    wide = (x.to_f64(), y.to_f64())
    if opcode == "abs":
        modulus = absolute(wide)
        return ScalarValue(kind.real_part, (modulus.result_f32() if narrow else modulus).value)
    function = UNARY.get(opcode)
    if function is None:
        raise InternalError(f"no unary {opcode} of {kind}")
    return _value(kind, function(wide))


def binary(emit: ScalarCode, opcode: str, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """Any element-wise binary opcode of complex numbers."""
    kind = a.element_type
    assert a.imag is not None
    assert b.imag is not None
    x = (emit.expr(a.llvm), emit.expr(a.imag))
    y = (emit.expr(b.llvm), emit.expr(b.imag))
    builder = emit.builder
    flags = ("reassoc",) if emit.reassociate else ()
    if opcode == "add":
        parts = [builder.fadd(p, q, flags=flags) for p, q in zip(a.registers(), b.registers())]
        return ScalarValue(kind, *parts)
    if opcode == "subtract":
        return _value(kind, (x[0] - y[0], x[1] - y[1]))
    if opcode == "multiply":
        return _value(kind, multiply(x, y))
    if opcode in ("maximum", "minimum"):
        return _extreme(emit, opcode == "maximum", a, b)
    u, v = (x[0].to_f64(), x[1].to_f64()), (y[0].to_f64(), y[1].to_f64())
    function = {"divide": quotient, "power": _power, "atan2": _atan2}.get(opcode)
    if function is None:
        raise InternalError(f"no binary {opcode} of {kind}")
    return _value(kind, function(u, v))


def _value(kind: ElementType, parts: ComplexParts) -> ScalarValue:
    real, imag = (p.result_f32() for p in parts) if kind.real_part.bits == 32 else parts
    return ScalarValue(kind, real.value, imag.value)


def _extreme(emit: ScalarCode, larger: bool, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """By the parts in order, as NumPy; a NaN anywhere in an operand wins."""
    (x, s), (y, t) = ([emit.expr(r) for r in v.registers()] for v in (a, b))
    first = x.gt(y) if larger else x.lt(y)
    second = s.gt(t) if larger else s.lt(t)
    bad = [u.is_nan() | v.is_nan() for u, v in ((x, s), (y, t))]
    chosen = bad[0] | ((first | (x.eq(y) & second)) & (bad[1] ^ -1))
    parts = [emit.builder.select(chosen.value, p, q) for p, q in zip(a.registers(), b.registers())]
    return ScalarValue(a.element_type, *parts)


def _power(x: ComplexParts, y: ComplexParts) -> ComplexParts:
    """exp(y log(x)); 1 for y = 0 whatever x is, 0 to the power of one with a positive real part is 0."""
    zero = x[0].eq(0.0) & x[1].eq(0.0)
    none = y[0].eq(0.0) & y[1].eq(0.0)
    real, imag = exp(multiply(y, log(x)))
    of_zero = y[0].gt(0.0).select(x[0].constant(0.0), numbers.nan)
    return none.select(1.0, zero.select(of_zero, real)), none.select(0.0, zero.select(of_zero, imag))


def _atan2(y: ComplexParts, x: ComplexParts) -> ComplexParts:
    """-i log(q) with q = (x + i y) / sqrt(x^2 + y^2).

    Near |q| = 1, where the logarithm would lose what is small, by the arctangent of y / x or of x / y, whichever is
    smaller; there q says in which quarter the angle lies.
    """
    steep = absolute(y).gt(absolute(x))
    t = atan(quotient(_chosen(steep, x, y), _chosen(steep, y, x)))
    parts = squarable(*x, *y)
    x, y = (parts[0], parts[1]), (parts[2], parts[3])
    ahead, behind = (x[0] - y[1], x[1] + y[0]), (x[0] + y[1], x[1] - y[0])
    # its sign decides between both sides of the cut: from the products, whose sum is zero only where it is
    (p, p_low), (q, q_low) = two_product(x[0], x[1]), two_product(y[0], y[1])
    square = (ahead[0] * behind[0] - ahead[1] * behind[1], ((p + q) + (p_low + q_low)) * 2.0)
    unit = quotient(ahead, sqrt(square))
    real, imag = log(unit)
    quarter = real.constant(numbers.pi / 2).copysign(unit[1])
    half = real.constant(numbers.pi).copysign(t[0].eq(0.0).select(unit[1], -t[0]))
    turned = unit[0].lt(0.0).select(t[0] + half, t[0])
    far = real.abs().gt(0.5)
    return (
        far.select(imag, steep.select(quarter - t[0], turned)),
        far.select(-real, steep.select(-t[1], t[1])),
    )


def _chosen(first: ScalarExpr, a: ComplexParts, b: ComplexParts) -> ComplexParts:
    return first.select(a[0], b[0]), first.select(a[1], b[1])
