"""Element-wise HLO opcodes on scalars, by the kind of the element type. Semantics: ops/support/emit.py.

The tables are keyed by HLO opcode, because that is how ops name the arithmetic they want.
"""

from __future__ import annotations

from collections.abc import Callable

from distxla.compiler.lower import complex_numbers, math
from distxla.compiler.lower.conversion import pack, rounded
from distxla.compiler.lower.scalar_code import ScalarCode
from distxla.compiler.lower.scalar_expression import ScalarExpr
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.errors import InternalError
from distxla.ir.element_type import C64, C128, F32, PRED, ElementType
from distxla.ops.support.total_order import OWN_ORDER


def unary(emit: ScalarCode, opcode: str, a: ScalarValue) -> ScalarValue:
    """Any element-wise unary opcode."""
    kind = a.element_type
    if kind.is_complex:
        return complex_numbers.unary(emit, opcode, a)
    if kind.is_float:
        return _float_unary(emit, opcode, a)
    return _integer_unary(emit, opcode, a)


def binary(emit: ScalarCode, opcode: str, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """Any element-wise binary opcode; both operands have one element type."""
    kind = a.element_type
    if a.element_type != b.element_type:
        raise InternalError(f"{opcode} of {a.element_type} and {b.element_type}")
    if kind.is_complex:
        return complex_numbers.binary(emit, opcode, a, b)
    if opcode == "complex":
        return ScalarValue(C64 if kind is F32 else C128, a.llvm, b.llvm)
    if kind.is_float:
        return _float_binary(emit, opcode, a, b)
    return _integer_binary(emit, opcode, a, b)


def compare(emit: ScalarCode, direction: str, comparison: str, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    """PRED. NaN is different from everything but in the total order, where it is beyond the infinities."""
    kind = a.element_type
    symbol = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}[direction]
    builder = emit.builder
    if kind.is_complex:
        compared = builder.fcmp_unordered if direction == "NE" else builder.fcmp_ordered
        parts = [compared(symbol, x, y) for x, y in zip(a.registers(), b.registers())]
        return ScalarValue(PRED, (builder.or_ if direction == "NE" else builder.and_)(*parts))
    if kind.is_float:
        if comparison == "TOTALORDER":
            keys = [_total_order_key(emit, v) for v in (a, b)]
            return ScalarValue(PRED, builder.icmp_signed(symbol, keys[0].value, keys[1].value))
        compared = builder.fcmp_unordered if direction == "NE" else builder.fcmp_ordered
        return ScalarValue(PRED, compared(symbol, a.llvm, b.llvm))
    signed = kind.is_signed
    return ScalarValue(PRED, (builder.icmp_signed if signed else builder.icmp_unsigned)(symbol, a.llvm, b.llvm))


def _total_order_key(emit: ScalarCode, value: ScalarValue) -> ScalarExpr:
    """An integer that orders floats as -NaN < -inf < … < -0 < 0 < … < inf < NaN."""
    kind = value.element_type
    # the code where there are NaNs of several payloads; else the f32 register orders as the code does
    own = kind.bits == 16 or kind in OWN_ORDER
    bits = emit.expr(pack(emit.builder, value) if own else value.llvm)
    if bits.is_float:
        bits = bits.bits()
    width = bits.width
    return bits ^ bits.ashr(width - 1).lshr(1)


# --- floats ------------------------------------------------------------------------------------------------------


def _float_unary(emit: ScalarCode, opcode: str, a: ScalarValue) -> ScalarValue:
    kind, x = a.element_type, emit.expr(a.llvm)
    if opcode in ("real", "convert"):
        return a
    if opcode == "imag":
        return emit.constant(0.0, kind)
    if opcode == "is-finite":
        return ScalarValue(PRED, x.abs().lt(float("inf")).value)
    if opcode == "negate":
        return _resigned(emit, a, -x)
    if opcode == "abs":
        return _resigned(emit, a, x.abs())
    if opcode == "sign":
        one = x.constant(1.0).copysign(x)
        apart = ScalarExpr(emit.builder, emit.builder.or_(x.eq(0.0).value, x.is_nan().value))
        return rounded(emit.builder, apart.select(x, one).value, kind)
    function = math.FUNCTIONS.get(opcode)
    if function is None:
        raise InternalError(f"no unary {opcode} of {kind}")
    return rounded(emit.builder, function(x).value, kind)


def _resigned(emit: ScalarCode, a: ScalarValue, result: ScalarExpr) -> ScalarValue:
    """Another sign needs no rounding, but the memory form, where known, does not fit any more."""
    if a.element_type.name in ("f16", "bf16", "f32", "f64"):
        return ScalarValue(a.element_type, result.value)
    return rounded(emit.builder, result.value, a.element_type)


def _float_binary(emit: ScalarCode, opcode: str, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    kind, builder = a.element_type, emit.builder
    x, y = emit.expr(a.llvm), emit.expr(b.llvm)
    flags = ("reassoc",) if emit.reassociate else ()
    simple = {"add": builder.fadd, "subtract": builder.fsub, "multiply": builder.fmul, "divide": builder.fdiv}.get(
        opcode
    )
    if simple is not None:
        return rounded(builder, simple(a.llvm, b.llvm, flags=flags), kind)
    if opcode in ("maximum", "minimum"):
        return rounded(builder, x.call(opcode, y).value, kind)
    other = math.BINARY_FUNCTIONS.get(opcode)
    if other is None:
        raise InternalError(f"no binary {opcode} of {kind}")
    return rounded(builder, other(x, y).value, kind)


# --- integers and pred ---------------------------------------------------------------------------------------------


def _integer_unary(emit: ScalarCode, opcode: str, a: ScalarValue) -> ScalarValue:
    kind, x = a.element_type, emit.expr(a.llvm)
    if opcode == "negate":
        result = -x
    elif opcode == "not":
        result = x ^ -1
    elif opcode == "abs":
        result = x.abs() if kind.is_signed else x
    elif opcode == "popcnt":
        result = x.call("ctpop")
    elif opcode == "count-leading-zeros":
        result = x.call_flag("ctlz", False)
    elif opcode == "sign":
        sign = x.ashr(x.width - 1) if kind.is_signed else x.constant(0)
        result = sign | x.ne(0).zext(x.width)
    elif opcode == "real":
        result = x
    elif opcode == "imag":
        result = x.constant(0)
    elif opcode == "is-finite":
        return emit.constant(True, PRED)
    else:
        raise InternalError(f"no unary {opcode} of {kind}")
    return ScalarValue(kind, result.value)


def _integer_binary(emit: ScalarCode, opcode: str, a: ScalarValue, b: ScalarValue) -> ScalarValue:
    kind, builder = a.element_type, emit.builder
    if kind is PRED:
        opcode = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "subtract": "xor"}.get(
            opcode, opcode
        )
    x, y = emit.expr(a.llvm), emit.expr(b.llvm)
    simple = {
        "add": builder.add,
        "subtract": builder.sub,
        "multiply": builder.mul,
        "and": builder.and_,
        "or": builder.or_,
        "xor": builder.xor,
    }.get(opcode)
    if simple is not None:
        return ScalarValue(kind, simple(a.llvm, b.llvm))
    emit_integer = _INTEGER_BINARY.get(opcode)
    if emit_integer is None:
        raise InternalError(f"no binary {opcode} of {kind}")
    return ScalarValue(kind, emit_integer(kind, x, y).value)


def _extreme(larger: bool) -> Callable[[ElementType, ScalarExpr, ScalarExpr], ScalarExpr]:
    def function(kind: ElementType, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
        return x.call(("s" if kind.is_signed else "u") + ("max" if larger else "min"), y)

    return function


def _divide(kind: ElementType, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    builder = x.builder
    zero = y.eq(0)
    if not kind.is_signed:
        divisor = zero.select(1, y)
        return zero.select(-1, x.of(builder.udiv(x.value, divisor.value)))
    # the one overflow is a negation
    minus = y.eq(-1)
    unsafe = x.of(builder.or_(zero.value, minus.value))
    quotient = x.of(builder.sdiv(x.value, unsafe.select(1, y).value))
    return zero.select(-1, minus.select(-x, quotient))


def _remainder(kind: ElementType, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    builder = x.builder
    zero = y.eq(0)
    if not kind.is_signed:
        return zero.select(x, x.of(builder.urem(x.value, zero.select(1, y).value)))
    minus = y.eq(-1)
    unsafe = x.of(builder.or_(zero.value, minus.value))
    rest = x.of(builder.srem(x.value, unsafe.select(1, y).value))
    return zero.select(x, minus.select(0, rest))


def _shift(name: str) -> Callable[[ElementType, ScalarExpr, ScalarExpr], ScalarExpr]:
    def function(kind: ElementType, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
        width = x.width
        inside = y.ult(width)
        if name == "ashr":
            return x.ashr(inside.select(y, width - 1))
        return inside.select(getattr(x, name)(inside.select(y, 0)), 0)

    return function


def _high_product(kind: ElementType, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    width = x.width
    if kind.is_signed:
        return (x.sext(2 * width) * y.sext(2 * width)).lshr(width).trunc(width)
    return (x.zext(2 * width) * y.zext(2 * width)).lshr(width).trunc(width)


def _power(kind: ElementType, x: ScalarExpr, y: ScalarExpr) -> ScalarExpr:
    """By squaring, in a loop over the exponent's bits."""
    builder = x.builder
    one, zero = x.constant(1), x.constant(0)
    before, loop = builder.block, builder.append_basic_block("power")
    after = builder.append_basic_block("powered")
    builder.branch(loop)
    builder.position_at_end(loop)
    total, square, left = (builder.phi(x.type) for _ in range(3))
    for phi, start in zip((total, square, left), (one, x, y)):
        phi.add_incoming(start.value, before)
    rest = x.of(left)
    product = (rest & 1).ne(0).select(x.of(total) * x.of(square), x.of(total))
    shorter = rest.lshr(1)
    for phi, following in zip((total, square, left), (product, x.of(square) * x.of(square), shorter)):
        phi.add_incoming(following.value, loop)
    builder.cbranch(shorter.ne(0).value, loop, after)
    builder.position_at_end(after)
    if not kind.is_signed:
        return product
    parity = (y & 1).ne(0).select(x.constant(-1), 1)
    reciprocal = x.eq(1).select(one, x.eq(-1).select(parity, zero))
    return y.lt(0).select(reciprocal, product)


_INTEGER_BINARY: dict[str, Callable[[ElementType, ScalarExpr, ScalarExpr], ScalarExpr]] = {
    "divide": _divide,
    "remainder": _remainder,
    "maximum": _extreme(True),
    "minimum": _extreme(False),
    "power": _power,
    "shift-left": _shift("shl"),
    "shift-right-logical": _shift("lshr"),
    "shift-right-arithmetic": _shift("ashr"),
    "mulhi": _high_product,
}
