"""The element-wise ops of one operand: a table, one row an opcode."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import COMPLEXES, F64, FLOATS, INTEGERS, PRED, ElementType
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

_NUMBER = r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|inf"
_TOLERANCE = rf"\s*(?:atol|rtol|ulps)\s*=\s*(?:{_NUMBER})\s*"
_ACCURACY = re.compile(
    rf"\{{\s*(?:mode\s*=\s*(?:(?i:default|highest))|tolerance\s*=\s*\{{(?:{_TOLERANCE}(?:,{_TOLERANCE})*|\s*)\}})\s*\}}"
)
SIGNED = tuple(t for t in INTEGERS if t.is_signed)


@dataclass(frozen=True, eq=False, repr=False)
class ElementwiseUnary(ExecutableOp):
    """An op that computes each element from the operand's element at the same index.

    domain: element types that XLA accepts.  result_type: the result's element type by the operand's.  function: the
    NumPy form, on values in their computation type; the result is rounded or wrapped to the result's type.
    """

    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    domain: ClassVar[tuple[ElementType, ...]]
    result_type: ClassVar[Callable[[ElementType], ElementType]]
    function: ClassVar[Callable[[Array, ElementType], Any]]

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        self.require(
            operand.is_array and operand.dtype in self.domain,
            "C1",
            f"the operand is {operand}, which is not {kinds(self.domain)}",
            at="operands",
        )
        return operand.without_layout().with_dtype(type(self).result_type(operand.dtype))

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        (operand,) = operands
        with np.errstate(all="ignore"):
            result = type(self).function(widened(operand), run.operand_shapes[0].dtype)
        return converted(np.asarray(result), run.shape.dtype)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.unary(self.opcode, operands[0].load(index))


@dataclass(frozen=True, eq=False, repr=False)
class Transcendental(ElementwiseUnary):
    """An element-wise op whose text may ask for an accuracy, as in `result_accuracy={mode=highest}`.

    The accuracy is kept for printing; the one emitted form is meant to satisfy all modes. The oracle computes in 64
    bits, so that its own error does not count for narrower types.

    Errors:  accuracy: result_accuracy is neither a mode, default or highest, nor a tolerance of atol, rtol and ulps
             that are not negative.
    """

    result_accuracy: str | None = attribute("raw", default=None)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        if self.result_accuracy is not None:
            known = _ACCURACY.fullmatch(self.result_accuracy) is not None
            text = "must be {mode=default}, {mode=highest} or {tolerance={atol=..,rtol=..,ulps=..}}"
            self.require(known, "accuracy", f"result_accuracy={self.result_accuracy} {text}", at="result_accuracy")
        return super().infer_shape(operands, called)

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        (operand,) = operands
        wide = widened(operand)
        widest = {"f": np.float64, "c": np.complex128}[wide.dtype.kind]
        with np.errstate(all="ignore"):
            result = np.asarray(type(self).function(wide.astype(widest), run.shape.dtype)).astype(wide.dtype)
        return converted(result, run.shape.dtype)


def _same(element_type: ElementType) -> ElementType:
    return element_type


def _real_part(element_type: ElementType) -> ElementType:
    return element_type.real_part


def _pred(element_type: ElementType) -> ElementType:
    return PRED


# --- NumPy forms that need more than one name ----------------------------------------------------------------------


def _sign(x: Array, _: ElementType) -> Any:
    """Zeros keep their sign, NaN stays; complex: each part over |x|, which makes NaN of infinite parts as in XLA."""
    if x.dtype.kind == "c":
        modulus = _abs(x, F64)
        return np.where(x == 0, 0, complex_of(x.real / modulus, x.imag / modulus))
    return np.where(x == 0, x, np.sign(x))


def _popcnt(x: Array, element_type: ElementType) -> Any:
    bits = x.astype(np.int64).view(np.uint64) if x.dtype.kind == "i" else x.astype(np.uint64)
    return np.bitwise_count(bits & np.uint64((1 << element_type.bits) - 1)).astype(np.int64)


def _count_leading_zeros(x: Array, element_type: ElementType) -> Any:
    mask = (1 << element_type.bits) - 1
    count = [element_type.bits - (int(value) & mask).bit_length() for value in x.ravel()]
    return np.array(count, np.int64).reshape(x.shape)


def _round_nearest_afz(x: Array, _: ElementType) -> Any:
    """Halves away from zero; adding 0.5 first would round 0.49999997 up."""
    towards_zero = np.trunc(x)
    away = np.abs(x - towards_zero) >= 0.5
    return np.where(away, towards_zero + np.sign(x), towards_zero)


def _erf(x: Array, _: ElementType) -> Any:
    return np.array([math.erf(value) for value in x.ravel().tolist()], x.dtype).reshape(x.shape)


def _abs(x: Array, _: ElementType) -> Any:
    return np.hypot(x.real.astype(np.float64), x.imag) if x.dtype.kind == "c" else np.abs(x)


def _logistic(x: Array, _: ElementType) -> Any:
    """From the exponential that does not overflow."""
    if x.dtype.kind == "c":
        grown = np.exp(-x)
        return quotient(np.ones_like(x), complex_of(grown.real + 1, grown.imag))
    shrunk = np.exp(-np.abs(x))
    return np.where(x < 0, shrunk, 1) / (1 + shrunk)


def _rsqrt(x: Array, _: ElementType) -> Any:
    return quotient(np.ones_like(x), np.sqrt(x)) if x.dtype.kind == "c" else 1 / np.sqrt(x)


def _expm1(x: Array, _: ElementType) -> Any:
    """Complex: e^a cos b - 1 = expm1(a) cos b - 2 sin(b/2)^2 for a + i b, exp(x) - 1 where that has infinities."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    grown = np.exp(x)
    near = np.expm1(x.real) * np.cos(x.imag) - 2 * np.sin(x.imag / 2) ** 2
    real = np.where(np.abs(x.real) < 709, np.where(np.isfinite(x.imag), near, grown.real - 1), grown.real - 1)
    return complex_of(np.where(x.imag == 0, np.expm1(x.real), real), grown.imag)


def _log1p(x: Array, _: ElementType) -> Any:
    """Complex: |1 + x|^2 = 1 + (2 a + a^2 + b^2) for a + i b."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    a, b = x.real.astype(np.longdouble), x.imag.astype(np.longdouble)
    near = np.log1p(a * (a + 2) + b * b) / 2
    real = np.where((np.abs(a) < 0.5) & (np.abs(b) < 0.5), near, np.log(np.hypot(1 + a, b)))
    return complex_of(real.astype(np.float64), np.arctan2(x.imag, x.real + 1))


def _imag(x: Array, _: ElementType) -> Any:
    return x.imag if x.dtype.kind == "c" else np.zeros_like(x)


# --- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One opcode. function: NumPy, of (values in their computation type, the operand's element type)."""

    opcode: str
    summary: str
    domain: tuple[ElementType, ...]
    function: Callable[[Array, ElementType], Any]
    result_type: Callable[[ElementType], ElementType] = _same
    base_class: type[ElementwiseUnary] = ElementwiseUnary
    is_expensive: bool = False


def _transcendental(
    opcode: str, summary: str, function: Callable[..., Any], domain: tuple[ElementType, ...] = FLOATS + COMPLEXES
) -> Row:
    form = (lambda x, _: function(x)) if isinstance(function, np.ufunc) else function
    return Row(opcode, summary, domain, form, base_class=Transcendental, is_expensive=opcode not in ("sqrt", "rsqrt"))


ROWS: tuple[Row, ...] = (
    Row(
        "abs",
        "The absolute value; of a complex number its modulus, of the lowest integer itself.",
        SIGNED + FLOATS + COMPLEXES,
        _abs,
        _real_part,
    ),
    Row("ceil", "The smallest integral value that is not below the operand.", FLOATS, lambda x, _: np.ceil(x)),
    Row("floor", "The largest integral value that is not above the operand.", FLOATS, lambda x, _: np.floor(x)),
    Row("round-nearest-afz", "To the nearest integral value, halves away from zero.", FLOATS, _round_nearest_afz),
    Row("round-nearest-even", "To the nearest integral value, halves to even.", FLOATS, lambda x, _: np.rint(x)),
    Row("is-finite", "Whether the operand is neither infinite nor NaN.", FLOATS, lambda x, _: np.isfinite(x), _pred),
    Row(
        "negate",
        "The additive inverse; the lowest integer's is itself.",
        INTEGERS + FLOATS + COMPLEXES,
        lambda x, _: -x,
    ),
    Row(
        "sign",
        "-1, 0 or 1; -0.0 and NaN stay, complex numbers are divided by their modulus.",
        SIGNED + FLOATS + COMPLEXES,
        _sign,
    ),
    Row("not", "Logical negation of pred, every bit inverted of integers.", (PRED, *INTEGERS), lambda x, _: ~x),
    Row("popcnt", "The number of bits that are set.", INTEGERS, _popcnt),
    Row(
        "count-leading-zeros",
        "The number of zero bits above the highest set one; the width for 0.",
        INTEGERS,
        _count_leading_zeros,
    ),
    Row("real", "The real part; a real operand is its own.", FLOATS + COMPLEXES, lambda x, _: x.real, _real_part),
    Row("imag", "The imaginary part; zero of a real operand.", FLOATS + COMPLEXES, _imag, _real_part),
    _transcendental("exponential", "e to the power of the operand.", np.exp),
    _transcendental("exponential-minus-one", "exp(x) - 1, exact for small x.", _expm1),
    _transcendental("log", "The natural logarithm; NaN below zero, -inf at zero.", np.log),
    _transcendental("log-plus-one", "log(1 + x), exact for small x.", _log1p),
    _transcendental("logistic", "1 / (1 + exp(-x)).", _logistic),
    _transcendental("sqrt", "The square root; -0.0 stays.", np.sqrt),
    _transcendental("rsqrt", "1 / sqrt(x).", _rsqrt),
    _transcendental("cbrt", "The cube root.", np.cbrt, FLOATS),
    _transcendental("sine", "The sine of radians.", np.sin),
    _transcendental("cosine", "The cosine of radians.", np.cos),
    _transcendental("tan", "The tangent of radians.", np.tan),
    _transcendental("asin", "The inverse sine, in [-pi/2, pi/2].", np.arcsin),
    _transcendental("acos", "The inverse cosine, in [0, pi].", np.arccos),
    _transcendental("sinh", "The hyperbolic sine.", np.sinh),
    _transcendental("cosh", "The hyperbolic cosine.", np.cosh),
    _transcendental("tanh", "The hyperbolic tangent.", np.tanh),
    _transcendental("asinh", "The inverse hyperbolic sine.", np.arcsinh),
    _transcendental("acosh", "The inverse hyperbolic cosine.", np.arccosh),
    _transcendental("atanh", "The inverse hyperbolic tangent.", np.arctanh),
    _transcendental("erf", "The error function.", _erf, FLOATS),
)


def _declare(row: Row) -> type[Op]:
    documentation = (
        f"{row.summary}\n\n    Shapes:  T[dims] -> {'pred' if row.result_type is _pred else 'T'}[dims]"
        f"{', for complex T its real part type' if row.result_type is _real_part else ''}."
        f"\n    Errors:  C1 T is not {kinds(row.domain)}."
    )
    name = "".join(part.capitalize() for part in row.opcode.split("-"))
    body: dict[str, Any] = {
        "__doc__": documentation,
        "__module__": __name__,
        "opcode": row.opcode,
        "domain": row.domain,
        "elements": ElementRules(is_elementwise=True, is_expensive=row.is_expensive),
        "result_type": staticmethod(row.result_type),
        "function": staticmethod(row.function),
    }
    return register(type(name, (row.base_class,), body))


# Bound to their names in this module, where pickle looks for them.
globals().update({op.__name__: op for op in map(_declare, ROWS)})
