"""The element-wise ops of two operands of equal shapes: a table, one row an opcode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.element_type import (
    C64,
    C128,
    COMPLEXES,
    DATA_TYPES,
    F8E8M0FNU,
    F32,
    F64,
    FLOATS,
    INTEGERS,
    PRED,
    ElementType,
)
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import ElementRules, OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.complex_arithmetic import complex_of, quotient
from distxla.ops.support.conversion import Array, converted, kinds, widened
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


def common_shape(op: Op, operands: Sequence[Shape], rule: str) -> Shape:
    """The shape that all operands share but for layouts; a dimension is dynamic where it is in any of them."""
    first = operands[0]
    for other in operands:
        op.require(
            other.is_array and other.dims == first.dims,
            rule,
            f"the operands must be arrays of equal dimension sizes, not {' and '.join(map(str, operands))}",
            at="operands",
        )
    dynamic = tuple(any(flags) for flags in zip(*(s.dynamic or (False,) * s.rank for s in operands), strict=True))
    return Shape(first.element_type, first.dims, dynamic)


@dataclass(frozen=True, eq=False, repr=False)
class ElementwiseBinary(ExecutableOp):
    """An op that computes each element from the two operands' elements at the same index.

    domain: element types that XLA accepts.  function: the NumPy form, of values in their computation type and the
    operands' element type; the result is rounded or wrapped to the result's type.
    """

    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(2)
    domain: ClassVar[tuple[ElementType, ...]]
    result_type: ClassVar[Callable[[ElementType], ElementType]]
    function: ClassVar[Callable[[Array, Array, ElementType], Any]]
    neutral: ClassVar[Callable[[ElementType], Any]]

    def neutral_value(self, element_type: ElementType) -> Any:
        return type(self).neutral(element_type)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        shape = common_shape(self, operands, "C1")
        left, right = operands
        self.require(left.dtype is right.dtype, "C1", f"element types differ: {left} and {right}", at="operands")
        self.require(
            left.dtype in self.domain,
            "C2",
            f"the operands are {left}, which is not {kinds(self.domain)}",
            at="operands",
        )
        return shape.with_dtype(type(self).result_type(left.dtype))

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        left, right = operands
        with np.errstate(all="ignore"):
            result = type(self).function(widened(left), widened(right), run.operand_shapes[0].dtype)
        return converted(np.asarray(result), run.shape.dtype)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        left, right = operands
        return emit.binary(self.opcode, left.load(index), right.load(index))


# --- NumPy forms ---------------------------------------------------------------------------------------------------


def _divide(a: Array, b: Array, element_type: ElementType) -> Any:
    """Integers: towards zero, x / 0 has every bit set, the lowest by -1 is the lowest."""
    if element_type.is_complex:
        return quotient(a, b)
    if not element_type.is_integer:
        return a / b
    if not element_type.is_signed:
        return np.where(b == 0, ~np.zeros_like(a), a // np.where(b == 0, 1, b)).astype(a.dtype)
    # Wrapping negation gives lowest / -1; the floor of an inexact negative quotient is one too low.
    divisor = np.where((b == 0) | (b == -1), 1, b)
    whole = a // divisor
    whole = whole + ((whole < 0) & (whole * divisor != a))
    return np.where(b == 0, -1, np.where(b == -1, -a, whole)).astype(a.dtype)


def _remainder(a: Array, b: Array, element_type: ElementType) -> Any:
    """With the sign of the dividend. Integers: x % 0 = x, and x % -1 = 0 even for the lowest x."""
    if not element_type.is_integer:
        return np.fmod(a, b)
    divisor = np.where(b == 0, 1, b)
    if element_type.is_signed:
        divisor = np.where(b == -1, 1, divisor)
    return np.where(b == 0, a, np.fmod(a, divisor)).astype(a.dtype)


def _power(a: Array, b: Array, element_type: ElementType) -> Any:
    """Integers wrap; with a negative exponent 1 and -1 have a reciprocal, everything else gives 0. x^0 is 1."""
    if element_type.is_integer:
        modulus = 1 << a.dtype.itemsize * 8
        powers = [pow(int(x), int(y), modulus) if y >= 0 else 0 for x, y in zip(a.ravel(), b.ravel(), strict=True)]
        unsigned = np.array(powers, np.uint64).reshape(a.shape).astype(a.dtype)
        reciprocal = (
            np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)) if a.dtype.kind == "i" else 0
        )
        return np.where(b < 0, reciprocal, unsigned).astype(a.dtype)
    if element_type.is_complex:
        wide = a.astype(np.complex128)
        of_zero = np.where(b.real > 0, 0, np.nan + 1j * np.nan)
        return np.where(b == 0, 1, np.where(wide == 0, of_zero, np.exp(b.astype(np.complex128) * np.log(wide))))
    return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _extreme(function: np.ufunc, of_signs: np.ufunc) -> Callable[[Array, Array, ElementType], Any]:
    """of_signs: how the signs of two zeros combine."""

    def form(a: Array, b: Array, element_type: ElementType) -> Any:
        """NaN wins, -0.0 is below 0.0. Complex numbers compare by their parts in order (XLA CPU: by the real part)."""
        chosen = function(a, b)
        if element_type.is_float:
            zeros = (a == 0) & (b == 0)
            return np.where(zeros, np.where(of_signs(np.signbit(a), np.signbit(b)), -0.0, 0.0), chosen)
        return chosen

    return form


def _add(a: Array, b: Array, element_type: ElementType) -> Any:
    """pred: or, as NumPy has it."""
    return a + b


def _multiply(a: Array, b: Array, element_type: ElementType) -> Any:
    """pred: and, as NumPy has it."""
    return a * b


def _mulhi(a: Array, b: Array, element_type: ElementType) -> Any:
    """The upper half of the product of twice the width."""
    return np.asarray((a.astype(object) * b.astype(object)) >> element_type.bits, object).astype(a.dtype)


def _atan2(a: Array, b: Array, element_type: ElementType) -> Any:
    """Complex: -i log((b + i a) / sqrt(a^2 + b^2)); in a type that holds the squares of all f64, and what is small
    beside 1."""
    if element_type.is_complex:
        return _complex_atan2(a.astype(np.clongdouble), b.astype(np.clongdouble))
    return np.arctan2(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _complex_atan2(y: Array, x: Array) -> Array:
    """Near |q| = 1 by the arctangent of the smaller quotient, where the logarithm of q would lose what is small."""
    ahead, behind = (complex_of(x.real - s * y.imag, x.imag + s * y.real) for s in (1, -1))
    # its sign decides between both sides of the cut
    imag = 2 * (x.real * x.imag + y.real * y.imag)
    q = quotient(ahead, np.sqrt(complex_of(ahead.real * behind.real - ahead.imag * behind.imag, imag)))
    logarithm = np.log(q)
    steep = np.abs(y) > np.abs(x)
    t = np.arctan(quotient(np.where(steep, x, y), np.where(steep, y, x)))
    pi = np.arccos(np.longdouble(-1))
    half = np.copysign(pi, np.where(t.real == 0, q.imag, -t.real))
    turned = np.where(q.real < 0, t.real + half, t.real)
    real = np.where(steep, np.copysign(pi / 2, q.imag) - t.real, turned)
    far = np.abs(logarithm.real) > 0.5
    angle = np.where(far, logarithm.imag, real), np.where(far, -logarithm.real, np.where(steep, -t.imag, t.imag))
    return complex_of(*angle).astype(np.complex128)


def _complex(a: Array, b: Array, element_type: ElementType) -> Any:
    return complex_of(a, b)


def _shift(
    a: Array, b: Array, element_type: ElementType, shifted: Callable[[Array, Array], Array], beyond: Array
) -> Any:
    """`shifted` where the distance, an unsigned number, is below the width, `beyond` elsewhere."""
    inside = (b >= 0) & (b < element_type.bits)
    return np.where(inside, shifted(a, np.where(inside, b, 0).astype(a.dtype)), beyond)


def _shift_left(a: Array, b: Array, element_type: ElementType) -> Any:
    return _shift(a, b, element_type, np.left_shift, np.zeros_like(a))


def _shift_right_arithmetic(a: Array, b: Array, element_type: ElementType) -> Any:
    """The top bit counts as the sign of unsigned types, too."""
    storage = 8 * a.dtype.itemsize
    signed = a.view(f"i{a.dtype.itemsize}")
    # A type of less than a byte has its sign further down.
    spare = storage - element_type.bits
    signed = (signed << spare) >> spare
    return _shift(signed, b, element_type, np.right_shift, np.where(signed < 0, -1, 0).astype(signed.dtype))


def _shift_right_logical(a: Array, b: Array, element_type: ElementType) -> Any:
    unsigned = a.view(f"u{a.dtype.itemsize}") & np.array((1 << element_type.bits) - 1, f"u{a.dtype.itemsize}")
    return _shift(unsigned, b, element_type, np.right_shift, np.zeros_like(unsigned))


def _complex_type(element_type: ElementType) -> ElementType:
    return {F32: C64, F64: C128}[element_type]


def _same(element_type: ElementType) -> ElementType:
    return element_type


# --- values that change nothing ------------------------------------------------------------------------------------


def _no_neutral(element_type: ElementType) -> None:
    """None is known."""


def _zero(element_type: ElementType) -> Any:
    """-0.0 of floats: 0.0 would make 0.0 of -0.0. f8e8m0fnu has no zero."""
    if element_type in (PRED, F8E8M0FNU):
        return None
    return -0.0 if element_type.is_float else 0


def _one(element_type: ElementType) -> Any:
    return None if element_type is PRED else 1


def _lowest(element_type: ElementType) -> Any:
    return element_type.lowest if element_type.is_float or element_type.is_integer else None


def _highest(element_type: ElementType) -> Any:
    return element_type.highest if element_type.is_float or element_type.is_integer else None


# --- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One opcode. function: NumPy, of (values in their computation type twice, the operands' element type).
    neutral, keeps_larger: `Op.neutral_value`, by element type; `ElementRules.keeps_larger`."""

    opcode: str
    summary: str
    domain: tuple[ElementType, ...]
    function: Callable[[Array, Array, ElementType], Any]
    result_type: Callable[[ElementType], ElementType] = _same
    is_expensive: bool = False
    neutral: Callable[[ElementType], Any] = _no_neutral
    keeps_larger: bool | None = None


NUMBERS = INTEGERS + FLOATS + COMPLEXES
BITS = (PRED, *INTEGERS)

ROWS: tuple[Row, ...] = (
    Row("add", "The sum; integers wrap, of pred it is or.", DATA_TYPES, _add, neutral=_zero),
    Row("subtract", "The difference; integers wrap.", NUMBERS, lambda a, b, _: a - b),
    Row("multiply", "The product; integers wrap, of pred it is and.", DATA_TYPES, _multiply, neutral=_one),
    Row(
        "divide",
        "The quotient; integers towards zero, x / 0 = -1 (every bit set), lowest / -1 = lowest.",
        NUMBERS,
        _divide,
    ),
    Row(
        "remainder",
        "The rest of a division towards zero, with the dividend's sign; of integers x % 0 = x.",
        INTEGERS + FLOATS,
        _remainder,
        is_expensive=True,
    ),
    Row("power", "The first operand to the power of the second; integers wrap.", NUMBERS, _power, is_expensive=True),
    Row(
        "maximum",
        "The larger operand; NaN if one is NaN.",
        DATA_TYPES,
        _extreme(np.maximum, np.logical_and),
        neutral=_lowest,
        keeps_larger=True,
    ),
    Row(
        "minimum",
        "The smaller operand; NaN if one is NaN.",
        DATA_TYPES,
        _extreme(np.minimum, np.logical_or),
        neutral=_highest,
        keeps_larger=False,
    ),
    Row("and", "Bitwise and, logical of pred.", BITS, lambda a, b, _: a & b),
    Row("or", "Bitwise or, logical of pred.", BITS, lambda a, b, _: a | b),
    Row("xor", "Bitwise exclusive or, logical of pred.", BITS, lambda a, b, _: a ^ b),
    Row(
        "shift-left",
        "Bits moved up; 0 where the distance, as an unsigned number, reaches the width.",
        INTEGERS,
        _shift_left,
    ),
    Row(
        "shift-right-arithmetic",
        "Bits moved down, copies of the top bit coming in; only those where the distance reaches the width.",
        INTEGERS,
        _shift_right_arithmetic,
    ),
    Row(
        "shift-right-logical",
        "Bits moved down, zeros coming in; 0 where the distance reaches the width.",
        INTEGERS,
        _shift_right_logical,
    ),
    Row("atan2", "The angle of the point (second, first) in [-pi, pi].", FLOATS + COMPLEXES, _atan2, is_expensive=True),
    Row("complex", "A complex number from its real and its imaginary part.", (F32, F64), _complex, _complex_type),
    Row("mulhi", "The upper half of the double-width product of integers.", INTEGERS, _mulhi),
)


def _declare(row: Row) -> type[Op]:
    result = "T" if row.result_type is _same else "c64 or c128"
    documentation = (
        f"{row.summary}\n\n    Shapes:  T[dims], T[dims] -> {result}[dims]."
        "\n    Errors:  C1 the operands' shapes differ."
        f"\n             C2 T is not {kinds(row.domain)}."
    )
    name = "".join(part.capitalize() for part in row.opcode.split("-"))
    body: dict[str, Any] = {
        "__doc__": documentation,
        "__module__": __name__,
        "opcode": row.opcode,
        "domain": row.domain,
        "elements": ElementRules(
            is_elementwise=True,
            is_expensive=row.is_expensive,
            is_sum=row.function is _add,
            keeps_larger=row.keeps_larger,
        ),
        "neutral": staticmethod(row.neutral),
        "result_type": staticmethod(row.result_type),
        "function": staticmethod(row.function),
    }
    return register(type(name, (ElementwiseBinary,), body))


# Bound to their names in this module, where pickle looks for them.
globals().update({op.__name__: op for op in map(_declare, ROWS)})
