"""HLO `convert`, `bitcast-convert`, `reduce-precision` and `stochastic-convert`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import F8E8M0FNU, F16, F32, F64, U2, U4, U8, U16, U32, U64, ElementType
from distxla.ir.op import Lowering
from distxla.ir.op_traits import ElementRules, OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.conversion import Array, computation_type, converted
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register

UNSIGNED: dict[int, ElementType] = {2: U2, 4: U4, 8: U8, 16: U16, 32: U32, 64: U64}


@register
class Convert(ExecutableOp):
    """Every element as another type.

    Float to integer goes towards zero and saturates, NaN becomes 0; integers wrap; to a float everything rounds once,
    to nearest, ties to even; pred is "unequal to zero"; of complex numbers anything real takes the real part.

    Shapes:  T[dims] -> U[dims]; any T and U that hold data.
    Errors:  C1 the dimension sizes of the result are not the operand's.
    """

    opcode = "convert"
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True)
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        (operand,) = operands
        self.require(
            operand.is_array and shape.is_array and shape.dims == operand.dims,
            "C1",
            f"{operand} cannot become {shape}: the dimension sizes must stay",
            at="shape",
        )

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return shape.dtype is operands[0].dtype

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        return converted(operands[0], run.shape.dtype)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.convert(operands[0].load(index), shape.dtype)


@register
class BitcastConvert(ExecutableOp):
    """The same bits as another type.

    A wider type splits into a new last dimension, a narrower one's last dimension joins; element 0 has the low bits.

    Shapes:  T[dims] -> U[dims] of equal widths; T[dims] -> U[dims, k] where T is k times as wide; T[dims, k] -> U[dims]
             where U is k times as wide.
    Errors:  C1 the dimension sizes do not fit the widths.  C2 one type is complex, the other is not.
    """

    opcode = "bitcast-convert"
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        (operand,) = operands
        self.require(operand.is_array and shape.is_array, "C1", f"{operand} to {shape}: not arrays", at="operands")
        old, new = operand.dtype, shape.dtype
        self.require(old.is_complex == new.is_complex, "C2", f"{operand} to {shape}: one is complex", at="shape")
        wide, narrow = (operand, shape) if old.bits >= new.bits else (shape, operand)
        joined = (*wide.dims, wide.dtype.bits // narrow.dtype.bits) if old.bits != new.bits else wide.dims
        self.require(narrow.dims == joined, "C1", f"{operand} has not the bits of {shape}", at="shape")

    def run_time_shape(self, shape: Shape, operands: Sequence[Shape], actual: Sequence[Shape], called: Called) -> Shape:
        (have,) = (s.dims for s in actual)
        common = min(shape.rank, len(have))
        return shape.with_dims((*have[:common], *shape.dims[common:]))

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return all(t.bits == 8 * t.byte_size for t in (shape.dtype, operands[0].dtype))

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        old, new = run.operand_shapes[0].dtype, run.shape.dtype
        array = np.array(operands[0], order="C")
        if old.bits % 8 == 0 and new.bits % 8 == 0:
            return array.reshape(-1).view(new.dtype).reshape(run.shape.dims)
        # A type of less than a byte takes a whole byte in memory, so the bits go through a list of bits.
        stored = array.reshape(-1, 1).view(np.uint8) if array.size else np.empty((0, old.byte_size), np.uint8)
        bits = np.unpackbits(stored, axis=1, bitorder="little")[:, : old.bits].reshape(-1, new.bits)
        padded = np.zeros((len(bits), 8 * new.byte_size), np.uint8)
        padded[:, : new.bits] = bits
        return np.packbits(padded, axis=1, bitorder="little").reshape(-1).view(new.dtype).reshape(run.shape.dims)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        (operand,) = operands
        old, new = operand.shape.dtype, shape.dtype
        if old.bits == new.bits:
            return emit.bitcast(operand.load(index), new)
        if old.is_complex and old.bits < new.bits:
            return emit.binary("complex", *(emit.bitcast(operand.load([*index, k]), F64) for k in range(2)))
        if old.is_complex:
            whole = operand.load(index[:-1])
            first = emit.index_compare("EQ", index[-1], 0)
            return emit.bitcast(emit.select(first, emit.unary("real", whole), emit.unary("imag", whole)), new)
        if old.bits > new.bits:
            word = UNSIGNED[old.bits]
            distance = emit.value_of(index[-1] * new.bits, word)
            shifted = emit.binary("shift-right-logical", emit.bitcast(operand.load(index[:-1]), word), distance)
            return emit.bitcast(emit.convert(shifted, UNSIGNED[new.bits]), new)
        word = UNSIGNED[new.bits]
        joined = emit.constant(0, word)
        for k in range(new.bits // old.bits):
            part = emit.convert(emit.bitcast(operand.load([*index, k]), UNSIGNED[old.bits]), word)
            joined = emit.binary("or", joined, emit.binary("shift-left", part, emit.constant(k * old.bits, word)))
        return emit.bitcast(joined, new)


@register
class ReducePrecision(ExecutableOp):
    """Round to the values of a float with `exponent_bits` and `mantissa_bits`, in the operand's own type.

    To nearest, ties to even; too large becomes infinite; values that are subnormals of such a float become zero; NaN
    stays. Operands of fewer than 16 bits are rounded as the f16 they are (f8e8m0fnu: as f32).

    Shapes:  T[dims] -> T[dims]; T is a float.
    Errors:  C1 T is no float.  C2 exponent_bits below 1.  C3 mantissa_bits below 0.
    """

    opcode = "reduce-precision"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True)
    exponent_bits: int = attribute("int")
    mantissa_bits: int = attribute("int")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        self.require(operand.is_array and operand.dtype.is_float, "C1", f"{operand} is no float", at="operands")
        self.require(self.exponent_bits >= 1, "C2", f"exponent_bits={self.exponent_bits}", at="exponent_bits")
        self.require(self.mantissa_bits >= 0, "C3", f"mantissa_bits={self.mantissa_bits}", at="mantissa_bits")
        return operand.without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        own = run.shape.dtype
        # types below f16 are rounded as f16, the one without a sign as f32
        operand = operands[0]
        if own.bits < F16.bits:
            operand = converted(operand, F32 if own is F8E8M0FNU else F16)
        format_: Any = ml_dtypes.finfo(operand.dtype)  # type: ignore[no-untyped-call]
        bits = np.asarray(operand).view(f"u{operand.dtype.itemsize}").astype(np.uint64)
        dropped = format_.nmant - self.mantissa_bits
        if dropped > 0:
            last_kept = (bits >> np.uint64(dropped)) & np.uint64(1)
            bits = bits + np.uint64((1 << (dropped - 1)) - 1) + last_kept
            bits = bits & ~np.uint64((1 << dropped) - 1)
        sign_mask = np.uint64(1 << (format_.nexp + format_.nmant))
        infinity = np.uint64(((1 << format_.nexp) - 1) << format_.nmant)
        if self.exponent_bits < format_.nexp:
            bias, reduced_bias = (1 << (format_.nexp - 1)) - 1, (1 << (self.exponent_bits - 1)) - 1
            exponent, sign = bits & infinity, bits & sign_mask
            too_large = exponent > np.uint64((bias + reduced_bias) << format_.nmant)
            too_small = exponent <= np.uint64((bias - reduced_bias) << format_.nmant)
            bits = np.where(too_large, sign | infinity, np.where(too_small, sign, bits))
        rounded = np.asarray(bits).astype(f"u{operand.dtype.itemsize}").view(operand.dtype)
        return converted(np.where(operand != operand, operand, rounded), own)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.reduce_precision(operands[0].load(index), self.exponent_bits, self.mantissa_bits)


@register
class StochasticConvert(ExecutableOp):
    """stochastic-convert(x, random): x to an integer, rounded away from zero with the probability of its fraction.

    |x| is rounded up where `random` is below fraction * 2^bits; then `convert` does the rest (saturation, NaN to 0).

    Shapes:  T[dims], unsigned of T's width[dims] -> U[dims]; T is a float, U an integer type.
    Errors:  C1 T is no float.  C2 the random operand has another width or other dimension sizes, or is signed.  C3 U is
             no integer type or the dimension sizes change.
    """

    opcode = "stochastic-convert"
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(2)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True)
    needs_shape: ClassVar[bool] = True

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        operand, random = operands
        self.require(operand.is_array and operand.dtype.is_float, "C1", f"{operand} is no float", at="operands")
        fits = random.is_array and random.dims == operand.dims and random.dtype is UNSIGNED.get(operand.dtype.bits)
        self.require(fits, "C2", f"the random bits for {operand} are {random}", at="operands")
        fits = shape.is_array and shape.dtype.is_integer and shape.dims == operand.dims
        self.require(fits, "C3", f"{operand} cannot become {shape}", at="shape")

    def evaluate(self, run: Evaluation, *operands: Any) -> Array:
        operand, random = operands
        bits = run.operand_shapes[0].dtype.bits
        with np.errstate(all="ignore"):
            magnitude = np.abs(operand.astype(np.float64))
            whole = np.floor(magnitude)
            threshold = np.floor((magnitude - whole) * 2.0**bits)
            rounded = whole + (random.astype(np.float64) < threshold)
        return converted(np.copysign(rounded, operand.astype(np.float64)), run.shape.dtype)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        operand, random = operands
        wide = computation_type(operand.shape.dtype)
        x = emit.convert(operand.load(index), wide)
        magnitude = emit.unary("abs", x)
        whole = emit.unary("floor", magnitude)
        fraction = emit.binary("subtract", magnitude, whole)
        scale = emit.constant(2.0**operand.shape.dtype.bits, wide)
        threshold = emit.convert(emit.binary("multiply", fraction, scale), random.shape.dtype)
        away = emit.compare("LT", "UNSIGNED", random.load(index), threshold)
        one, zero = emit.constant(1.0, wide), emit.constant(0.0, wide)
        rounded = emit.binary("add", whole, emit.select(away, one, zero))
        negative = emit.compare("LT", "FLOAT", x, zero)
        return emit.convert(emit.select(negative, emit.unary("negate", rounded), rounded), shape.dtype)
