"""HLO `rng`, `rng-bit-generator` and `rng-get-and-update-state`: random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


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

    Shapes:  state u64[n] -> (u64[n], bits of the stated shape); also the bits alone.
    Errors:  C1 the state changes its shape; C2 the result is no such tuple; kind: no such algorithm.
    Source:  StableHLO spec, "rng_bit_generator"; Operation Semantics, "RngBitGenerator".
    """

    opcode: ClassVar[str] = "rng-bit-generator"
    lowering: ClassVar[Lowering] = Lowering.NONE
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
