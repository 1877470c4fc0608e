"""HLO `constant`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, OpRole, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Constant(ExecutableOp):
    """A value written in the program: `constant(literal)`, of any shape, tuples included.

    Shapes:  () -> the literal's.
    Errors:  C1 the text says another shape than the literal's; executing an elided literal `{...}`.
    """

    opcode = "constant"
    role: ClassVar[OpRole] = OpRole(is_constant=True)
    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(0)
    needs_shape: ClassVar[bool] = True
    literal: Literal = attribute("literal")

    @property
    def constant_array(self) -> Any:
        return self.literal.array

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        self.require(
            self.literal.shape.compatible(shape), "C1", f"the literal is {self.literal.shape}, not {shape}", at="shape"
        )

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return self.literal.shape

    @property
    def splat(self) -> Any:
        """The NumPy scalar that every element has in all its bits; None where they differ and for tuples."""
        array = self.literal.array
        if array is None or array.size == 0:
            return None
        first = array.reshape(-1)[:1]
        return first[0] if first.tobytes() * array.size == array.tobytes() else None

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        if self.literal.is_elided:
            return (
                "the text elides the constant's value as {...}; dump the module with large constants "
                "(--xla_dump_large_constants), or let `distxla run --generate-constants` make values"
            )
        return super().obstacle(shape, operands)

    def evaluation_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        return self.obstacle(instruction.shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return self._value(self.literal)

    def _value(self, literal: Literal) -> Any:
        if literal.elements is not None:
            return tuple(self._value(element) for element in literal.elements)
        return literal.array

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        if self.splat is not None:
            return emit.constant(np.asarray(self.splat)[()], shape.dtype)
        return emit.literal(self.literal).load(index)
