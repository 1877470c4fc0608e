"""`ScalarExpr`: a scalar LLVM value with operators, so that formulas read as formulas.

Floats get plain IEEE instructions (no fast-math flag), integers wrap. Everything written with lanes is free of
branches and calls and therefore vectorises.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from distxla.emit.native_function import I1, declared

F16T = ir.HalfType()
F32T = ir.FloatType()
F64T = ir.DoubleType()
FLOAT_BITS: dict[Any, int] = {F16T: 16, F32T: 32, F64T: 64}


def suffix(kind: ir.Type) -> str:
    """How intrinsics spell a type: f32, i64."""
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return f"f{FLOAT_BITS[kind]}"


class ScalarExpr:
    """value: an LLVM scalar (float, double, or iN).  Comparisons give i1 lanes; Python numbers mix in."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    @property
    def is_float(self) -> bool:
        return self.value.type in FLOAT_BITS

    @property
    def width(self) -> int:
        kind = self.value.type
        return kind.width if isinstance(kind, ir.IntType) else FLOAT_BITS[kind]

    def of(self, value: ir.Value) -> ScalarExpr:
        return ScalarExpr(self.builder, value)

    def constant(self, number: Any) -> ScalarExpr:
        """`number` as an expression of this one's type."""
        return ScalarExpr(
            self.builder, float_constant(self.type, number) if self.is_float else ir.Constant(self.type, int(number))
        )

    def _other(self, other: ScalarExpr | float | int) -> ir.Value:
        return other.value if isinstance(other, ScalarExpr) else self.constant(other).value

    # --- arithmetic

    def __add__(self, other: ScalarExpr | float) -> ScalarExpr:
        make = self.builder.fadd if self.is_float else self.builder.add
        return self.of(make(self.value, self._other(other)))

    __radd__ = __add__

    def __sub__(self, other: ScalarExpr | float) -> ScalarExpr:
        make = self.builder.fsub if self.is_float else self.builder.sub
        return self.of(make(self.value, self._other(other)))

    def __rsub__(self, other: float) -> ScalarExpr:
        return self.constant(other) - self

    def __mul__(self, other: ScalarExpr | float) -> ScalarExpr:
        make = self.builder.fmul if self.is_float else self.builder.mul
        return self.of(make(self.value, self._other(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: ScalarExpr | float) -> ScalarExpr:
        return self.of(self.builder.fdiv(self.value, self._other(other)))

    def __rtruediv__(self, other: float) -> ScalarExpr:
        return self.constant(other) / self

    def __neg__(self) -> ScalarExpr:
        return self.of(self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __and__(self, other: ScalarExpr | int) -> ScalarExpr:
        return self.of(self.builder.and_(self.value, self._other(other)))

    def __or__(self, other: ScalarExpr | int) -> ScalarExpr:
        return self.of(self.builder.or_(self.value, self._other(other)))

    def __xor__(self, other: ScalarExpr | int) -> ScalarExpr:
        return self.of(self.builder.xor(self.value, self._other(other)))

    def shl(self, by: ScalarExpr | int) -> ScalarExpr:
        return self.of(self.builder.shl(self.value, self._other(by)))

    def lshr(self, by: ScalarExpr | int) -> ScalarExpr:
        return self.of(self.builder.lshr(self.value, self._other(by)))

    def ashr(self, by: ScalarExpr | int) -> ScalarExpr:
        return self.of(self.builder.ashr(self.value, self._other(by)))

    def fma(self, factor: ScalarExpr | float, addend: ScalarExpr | float) -> ScalarExpr:
        """self * factor + addend, rounded once."""
        return self.call("fma", factor, addend)

    def polynomial(self, coefficients: Sequence[float]) -> ScalarExpr:
        """Horner's scheme with fused multiply-adds; highest power first."""
        total = self.constant(coefficients[0])
        for c in coefficients[1:]:
            total = total.fma(self, c)
        return total

    # --- comparisons; ordered unless the name says otherwise

    def _compare(self, operator: str, other: ScalarExpr | float, signed: bool = True) -> ScalarExpr:
        b = self.builder
        if self.is_float:
            return self.of(b.fcmp_ordered(operator, self.value, self._other(other)))
        make = b.icmp_signed if signed else b.icmp_unsigned
        return self.of(make(operator, self.value, self._other(other)))

    def lt(self, other: ScalarExpr | float) -> ScalarExpr:
        return self._compare("<", other)

    def le(self, other: ScalarExpr | float) -> ScalarExpr:
        return self._compare("<=", other)

    def gt(self, other: ScalarExpr | float) -> ScalarExpr:
        return self._compare(">", other)

    def ge(self, other: ScalarExpr | float) -> ScalarExpr:
        return self._compare(">=", other)

    def eq(self, other: ScalarExpr | float) -> ScalarExpr:
        return self._compare("==", other)

    def ult(self, other: ScalarExpr | int) -> ScalarExpr:
        return self._compare("<", other, signed=False)

    def ugt(self, other: ScalarExpr | int) -> ScalarExpr:
        return self._compare(">", other, signed=False)

    def ne(self, other: ScalarExpr | float) -> ScalarExpr:
        """Unordered for floats: NaN differs from everything."""
        if self.is_float:
            return self.of(self.builder.fcmp_unordered("!=", self.value, self._other(other)))
        return self._compare("!=", other)

    def is_nan(self) -> ScalarExpr:
        return self.of(self.builder.fcmp_unordered("uno", self.value, self.value))

    def select(self, on_true: ScalarExpr | float, on_false: ScalarExpr | float) -> ScalarExpr:
        """This i1 chooses; at least one side is an expression."""
        kind = on_true if isinstance(on_true, ScalarExpr) else on_false
        assert isinstance(kind, ScalarExpr)
        return self.of(self.builder.select(self.value, kind._other(on_true), kind._other(on_false)))

    # --- conversions

    def bits(self) -> ScalarExpr:
        """A float's bits as an integer."""
        return self.of(self.builder.bitcast(self.value, ir.IntType(self.width)))

    def float_of_bits(self) -> ScalarExpr:
        kind = {16: F16T, 32: F32T, 64: F64T}[self.width]
        return self.of(self.builder.bitcast(self.value, kind))

    def to_f64(self) -> ScalarExpr:
        return self if self.type == F64T else self.of(self.builder.fpext(self.value, F64T))

    def to_f32(self) -> ScalarExpr:
        """Rounded to nearest even."""
        return self if self.type == F32T else self.of(self.builder.fptrunc(self.value, F32T))

    def result_f32(self) -> ScalarExpr:
        """`to_f32` for values that may be rounded to f16 next.

        LLVM would merge the two roundings into one from double to half, for which there may be only a function of a
        compiler runtime that is not linked. The selection changes no value and keeps them apart.
        """
        rounded = self.to_f32()
        if self.type == F32T:
            return self
        return self.abs().gt(1e39).select(rounded.constant(math.inf).copysign(rounded), rounded)

    def zext(self, width: int) -> ScalarExpr:
        return self.of(self.builder.zext(self.value, ir.IntType(width))) if width != self.width else self

    def sext(self, width: int) -> ScalarExpr:
        return self.of(self.builder.sext(self.value, ir.IntType(width))) if width != self.width else self

    def trunc(self, width: int) -> ScalarExpr:
        return self.of(self.builder.trunc(self.value, ir.IntType(width))) if width != self.width else self

    # --- intrinsics

    def call(self, name: str, *others: ScalarExpr | float) -> ScalarExpr:
        """llvm.<name> on this type; all operands and the result have it."""
        kind = self.type
        arguments = [self.value, *(self._other(o) for o in others)]
        function = declared(self.builder.module, f"llvm.{name}.{suffix(kind)}", kind, [kind] * len(arguments))
        return self.of(self.builder.call(function, arguments))

    def call_flag(self, name: str, flag: bool) -> ScalarExpr:
        """llvm.<name> with an i1 constant behind the operand (ctlz, cttz, abs)."""
        kind = self.type
        function = declared(self.builder.module, f"llvm.{name}.{suffix(kind)}", kind, [kind, I1])
        return self.of(self.builder.call(function, [self.value, ir.Constant(I1, int(flag))]))

    def library(self, name: str, *others: ScalarExpr | float) -> ScalarExpr:
        """A C function T(T, …); the name gets an `f` for f32."""
        kind = self.type
        arguments = [self.value, *(self._other(o) for o in others)]
        function = declared(self.builder.module, name + ("f" if kind == F32T else ""), kind, [kind] * len(arguments))
        return self.of(self.builder.call(function, arguments))

    def abs(self) -> ScalarExpr:
        return self.call("fabs") if self.is_float else self.call_flag("abs", False)

    def copysign(self, sign: ScalarExpr) -> ScalarExpr:
        return self.call("copysign", sign)

    def sqrt(self) -> ScalarExpr:
        return self.call("sqrt")


def float_constant(kind: ir.Type, number: float | np.floating[Any]) -> ir.Constant:
    """A constant of half, float or double type; a NaN keeps its sign and its payload."""
    if math.isnan(number):
        width = FLOAT_BITS[kind]
        bits = int(np.asarray(number, f"f{width // 8}").view(f"u{width // 8}"))
        return ir.Constant(ir.IntType(width), bits).bitcast(kind)
    number = float(number)
    if kind == F32T and math.isfinite(number):
        number = _as_f32(number)
    return ir.Constant(kind, number)


def _as_f32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)
