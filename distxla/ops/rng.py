"""HLO `rng`, `rng-bit-generator` and `rng-get-and-update-state`: random numbers.

A device has one random state of 128 bits for each program that is loaded on it. It begins at INITIAL_STATE on every
device, as in XLA; `rng` and `rng-get-and-update-state` take it in their order in the program and move
it on, and the program's next run goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.effects import Effects
from distxla.ir.element_type import F32, F64, U32, U64, ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.concatenate import Concatenate
from distxla.ops.support import random_bits
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.expansion import Build
from distxla.ops.support.registry import register

INITIAL_STATE: Final = 0x7012395  # XLA's
# The key under which `rng` takes Philox blocks; the state numbers the blocks, so that no two instructions share one.
KEY: Final = 0x9E3779B97F4A7C15
_HALF: Final = 1 << 64


@register
class Rng(ExecutableOp):
    """Random numbers: uniform in [a, b), or normal with mean a and standard deviation b.

    They are made of Philox blocks numbered by the device's random state, so they are the same on all devices and after
    every start of the program, and new in each of its runs. (XLA mixes another key in; its numbers are others.)
    Uniform floats are a + k (b - a) / 2^p with p the type's precision; integers a + k mod (b - a). Where a is not below
    b all are a. Normal ones are Box-Muller's.

    Shapes:  (T[], T[]) -> T of the stated shape.
    Errors:  C1 types that differ; C2 a normal distribution of other than floats; kind: no such distribution.
    Source:  StableHLO spec, "rng"; Operation Semantics, "RngUniform", "RngNormal".
    """

    opcode: ClassVar[str] = "rng"
    effects: ClassVar[Effects] = Effects.RANDOM
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(2)
    needs_shape: ClassVar[bool] = True
    advances_state: ClassVar[bool] = True
    distribution: str = attribute("word")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        kinds = ("rng_uniform", "rng_normal")
        self.require(self.distribution in kinds, "kind", f"{self.distribution} is none of {kinds}", at="distribution")
        self.require(shape.is_array, "C1", f"gives an array, not {shape}", at="shape")
        self.require(not shape.dtype.is_complex, "C1", f"gives no {shape.dtype}", at="shape")
        for operand in operands:
            self.require(
                operand.compatible(Shape(shape.dtype)), "C1", f"{operand} for numbers of {shape.dtype}", at="operands"
            )
        if self.distribution == "rng_normal":
            self.require(shape.dtype.is_float, "C2", f"{shape.dtype} is no float type", at="shape")

    @property
    def _is_normal(self) -> bool:
        return self.distribution == "rng_normal"

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        element_type, dims = run.shape.dtype, run.shape.dims
        wide, words = _computing_type(element_type), self._bits(run.shape)
        state = run.advance_state(random_bits.philox_blocks(words))
        _, bits = random_bits.philox_array(np.array([KEY, state % _HALF, state // _HALF], np.uint64), words)
        a, b = (operand.astype(wide.dtype) for operand in operands)
        if self._is_normal:
            first, second = (half.reshape(dims) for half in bits)
            fraction = np.maximum(first, 1).astype(wide.dtype) * wide.dtype.type(2.0**-words.dtype.bits)
            length = np.sqrt(-2 * np.log(fraction))
            angle = wide.dtype.type(2 * np.pi) * _unit(second, wide)
            return (a + b * (length * np.cos(angle))).astype(element_type.dtype)
        if element_type.is_float:
            values = (_unit(bits, element_type) * (b - a) + a).astype(element_type.dtype)
            return np.where(values < operands[1], values, operands[0])
        dimension_size = int(operands[1]) - int(operands[0])
        if dimension_size <= 0:
            return np.full(dims, operands[0])
        return (bits % words.dtype.dtype.type(dimension_size) + a).astype(element_type.dtype)

    def expand(self, build: Build, instruction: Instruction) -> str:
        shape = instruction.shape.without_layout()
        element_type, dims = shape.dtype, shape.dims
        wide, words = _computing_type(element_type), self._bits(shape)
        compute = build.compute
        state = build.add(
            RngGetAndUpdateState(delta=random_bits.philox_blocks(words)), shape=Shape(U64, (2,)), name=instruction.name
        )
        key = build.literal([KEY], Shape(U64, (1,)))
        keyed = build.add(Concatenate(dimensions=(0,)), key, state)
        bits = build.add(RngBitGenerator(algorithm="rng_philox"), keyed, shape=words)

        def number(value: Any) -> str:
            return build.constant(value, wide, dims)

        a, b = (build.broadcast(build.convert(operand, wide), dims) for operand in instruction.operands)
        if self._is_normal:
            first, second = (build.reshape(build.row(bits, k), dims) for k in range(2))
            least = compute("maximum", first, build.constant(1, words.dtype, dims))
            fraction = compute("multiply", build.convert(least, wide), number(2.0**-words.dtype.bits))
            length = compute("sqrt", compute("multiply", number(-2), compute("log", fraction)))
            angle = compute("multiply", number(2 * np.pi), _build_unit(build, second, wide, wide))
            standard = compute("multiply", length, compute("cosine", angle))
            return build.convert(compute("add", a, compute("multiply", b, standard)), element_type)
        dimension_size = compute("subtract", b, a)
        if element_type.is_float:
            fraction = _build_unit(build, bits, element_type, wide)
            values = build.convert(compute("add", compute("multiply", fraction, dimension_size), a), element_type)
        else:
            values = build.convert(compute("add", compute("remainder", bits, dimension_size), a), element_type)
        low, high = (build.broadcast(operand, dims) for operand in instruction.operands)
        if element_type.is_float:
            return build.select(build.compare("LT", values, high), values, low)
        return build.select(build.compare("LT", low, high), values, low)

    def _bits(self, shape: Shape) -> Shape:
        """The array of words that the numbers are made of: one a number, of a normal distribution two."""
        word = U64 if shape.dtype.bits == 64 else U32
        return Shape(word, (2, shape.size)) if self._is_normal else Shape(word, shape.dims)


def _computing_type(element_type: ElementType) -> ElementType:
    """In which random numbers of a type are computed; of integers modulo the word's range."""
    if element_type.is_float:
        return F64 if element_type is F64 else F32
    return U64 if element_type.bits == 64 else U32


def _precision(element_type: ElementType) -> int:
    """The bits of a float type's significand, the one before the point included."""
    return int(ml_dtypes.finfo(element_type.dtype).nmant) + 1  # type: ignore[no-untyped-call]


def _unit(bits: Any, element_type: ElementType) -> Any:
    """Numbers in [0, 1) that a float type represents exactly, of words' upper bits."""
    wide, precision = _computing_type(element_type), _precision(element_type)
    upper = bits >> bits.dtype.type(8 * bits.dtype.itemsize - precision)
    return upper.astype(wide.dtype) * wide.dtype.type(2.0**-precision)


def _build_unit(build: Build, bits: str, element_type: ElementType, wide: ElementType) -> str:
    """Instructions for `_unit`."""
    shape, precision = build.shape(bits), _precision(element_type)
    distance = build.constant(shape.dtype.bits - precision, shape.dtype, shape.dims)
    upper = build.convert(build.compute("shift-right-logical", bits, distance), wide)
    return build.compute("multiply", upper, build.constant(2.0**-precision, wide, shape.dims))


@register
class RngBitGenerator(ExecutableOp):
    """Random bits from a state, and the next state.

    Shapes:     state u64[n] -> (u64[n], bits of the stated shape); also the bits alone.
    Algorithms: rng_three_fry (Threefry-2x32, state u64[2]), rng_philox (Philox-4x32, state u64[2] or u64[3]);
                rng_default is Philox, as on XLA CPU, whose bits these are. See ops/support/random_bits.py.
    Types:      bits as integers or floats; of types narrower than a word its lowest bits.
    Errors:     C1 the state changes its shape; C2 the result is no such tuple; kind: no such algorithm.
    Source:     StableHLO spec, "rng_bit_generator"; Operation Semantics, "RngBitGenerator".
    """

    opcode: ClassVar[str] = "rng-bit-generator"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(1)
    needs_shape: ClassVar[bool] = True
    algorithm: str = attribute("word")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        kinds = ("rng_default", "rng_three_fry", "rng_philox")
        self.require(self.algorithm in kinds, "kind", f"{self.algorithm} is none of {kinds}", at="algorithm")
        if shape.elements is None:
            self.require(shape.is_array, "C2", f"gives bits, not {shape}", at="shape")
            return
        self.require(
            len(shape.elements) == 2 and shape.elements[1].is_array,
            "C2",
            f"gives (state, bits), not {shape}",
            at="shape",
        )
        self.require(
            shape.elements[0].compatible(operands[0]),
            "C1",
            f"the state is {operands[0]}, the next one {shape.elements[0]}",
            at="shape",
        )

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        state, bits = operands[0], _bits_of(shape)
        words = ((2,),) if self.algorithm == "rng_three_fry" else ((2,), (3,))
        if not state.is_array or state.dtype is not U64 or state.dims not in words:
            wanted = " or ".join(f"u64[{dimension_size}]" for (dimension_size,) in words)
            return f"this version executes {self.algorithm} from a state {wanted}, not {state}"
        if not (bits.dtype.is_integer or bits.dtype.is_float):
            return f"this version generates random bits as integers or floats, not as {bits.dtype}"
        return super().obstacle(shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        bits = _bits_of(run.shape)
        generate = random_bits.threefry_array if self.algorithm == "rng_three_fry" else random_bits.philox_array
        state, values = generate(operands[0], bits)
        return values if run.shape.elements is None else (state, values)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        generate = random_bits.emit_threefry if self.algorithm == "rng_three_fry" else random_bits.emit_philox
        generate(emit, results[0] if len(results) == 2 else None, results[-1], operands[0])


def _bits_of(shape: Shape) -> Shape:
    return shape if shape.elements is None else shape.elements[1]


@register
class RngGetAndUpdateState(ExecutableOp):
    """The device's random state, low half first, which then moves on by `delta`.

    Shapes:  () -> u64[2].
    Errors:  C1 the result is no array; C2 `delta` is negative.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "rng-get-and-update-state"
    effects: ClassVar[Effects] = Effects.CUSTOM
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(0)
    needs_shape: ClassVar[bool] = True
    advances_state: ClassVar[bool] = True
    delta: int = attribute("int")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        self.require(shape.is_array, "C1", f"gives an array, not {shape}", at="shape")
        self.require(self.delta >= 0, "C2", f"delta={self.delta}", at="delta")

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        if not shape.compatible(Shape(U64, (2,))):
            return f"this version gives the random state as u64[2], not as {shape}"
        return super().obstacle(shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        state = run.advance_state(self.delta)
        return np.array([state % _HALF, state // _HALF], np.uint64)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        (result,) = results
        initial = np.array([INITIAL_STATE % _HALF, INITIAL_STATE // _HALF], np.uint64)
        state = emit.static_state("random_state", Literal.of(initial, Shape(U64, (2,))))
        low, high = state.load((0,)), state.load((1,))
        result.store((0,), low)
        result.store((1,), high)
        following = emit.binary("add", low, emit.constant(self.delta, U64))
        carry = emit.convert(emit.compare("LT", "UNSIGNED", following, low), U64)
        state.store((0,), following)
        state.store((1,), emit.binary("add", high, carry))
