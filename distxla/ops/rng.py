"""HLO `rng`, `rng-bit-generator` and `rng-get-and-update-state`: random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from distxla.ir.element_type import U64
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops import random_bits
from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.evaluation import Evaluation
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register

if TYPE_CHECKING:
    from distxla.ops.emit import Buffer, KernelEmitter


@register
class Rng(Op):
    """Random numbers: uniform in [a, b), or normal with mean a and standard deviation b.

    Shapes:  (T[], T[]) -> T of the stated shape.
    Errors:  C1 types that differ; C2 a normal distribution of other than floats; kind: no such distribution.
    Source:  StableHLO spec, "rng"; Operation Semantics, "RngUniform", "RngNormal".
    """

    opcode: ClassVar[str] = "rng"
    effects: ClassVar[Effects] = Effects.RANDOM
    lowering: ClassVar[Lowering] = Lowering.NONE
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    needs_shape: ClassVar[bool] = True
    distribution: str = attribute("word")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        kinds = ("rng_uniform", "rng_normal")
        self.require(self.distribution in kinds, "kind", f"{self.distribution} is none of {kinds}", at="distribution")
        self.require(shape.is_array, "C1", f"gives an array, not {shape}", at="shape")
        for operand in operands:
            self.require(
                operand.compatible(Shape(shape.dtype)), "C1", f"{operand} for numbers of {shape.dtype}", at="operands"
            )
        if self.distribution == "rng_normal":
            self.require(shape.dtype.is_float, "C2", f"{shape.dtype} is no float type", at="shape")


@register
class RngBitGenerator(Op):
    """Random bits from a state, and the next state.

    Shapes:     state u64[n] -> (u64[n], bits of the stated shape); also the bits alone.
    Algorithms: rng_three_fry (Threefry-2x32, state u64[2]), rng_philox (Philox-4x32, state u64[2] or u64[3]);
                rng_default is Philox, as on XLA CPU, whose bits these are. See ops/random_bits.py.
    Errors:     C1 the state changes its shape; C2 the result is no such tuple; kind: no such algorithm.
    Source:     StableHLO spec, "rng_bit_generator"; Operation Semantics, "RngBitGenerator".
    """

    opcode: ClassVar[str] = "rng-bit-generator"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    needs_shape: ClassVar[bool] = True
    algorithm: str = attribute("word")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
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
            wanted = " or ".join(f"u64[{extent}]" for (extent,) in words)
            return f"this version executes {self.algorithm} from a state {wanted}, not {state}"
        if not bits.dtype.is_integer or bits.dtype.bits < 8:
            return f"this version generates random bits as integers of 8 to 64 bits, not as {bits.dtype}"
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
class RngGetAndUpdateState(Op):
    """The device's random state, which then advances by `delta`.

    Shapes:  () -> u64[n].
    Errors:  C1 the result is no array.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "rng-get-and-update-state"
    effects: ClassVar[Effects] = Effects.CUSTOM
    lowering: ClassVar[Lowering] = Lowering.NONE
    max_operands: ClassVar[int | None] = 0
    needs_shape: ClassVar[bool] = True
    delta: int = attribute("int")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        self.require(shape.is_array, "C1", f"gives an array, not {shape}", at="shape")
