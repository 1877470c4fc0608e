"""HLO `copy`, `copy-start` and `copy-done`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import U32
from distxla.ir.op import Lowering, T
from distxla.ir.op_traits import ElementRules, OperandCount, StartDone, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.emit import ArrayRef, Buffer, Emitter, Index, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Copy(ExecutableOp):
    """The operand, possibly in another layout; a tuple is copied element by element.

    Shapes:  S -> S.
    """

    opcode = "copy"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(1)
    elements: ClassVar[ElementRules] = ElementRules(is_elementwise=True, only_moves=True)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return operands[0].without_layout()

    def is_view(self, shape: Shape, operands: Sequence[Shape]) -> bool:
        return True

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return operands[0].load(index)


@register
class CopyStart(ExecutableOp):
    """Begin a copy that copy-done ends. It is done at once: there is one memory.

    Shapes:  S -> (destination S, source S, context u32[]).
    Errors:  C1 the operand is not an array; the result is not such a tuple.
    """

    opcode = "copy-start"
    mixes_precision: ClassVar[bool] = False
    start_done: ClassVar[StartDone] = StartDone(starts_pair=True)
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    operand_count: ClassVar[OperandCount] = exactly(1)
    cross_program_prefetch_index: int | None = attribute("int", default=None)
    elements: ClassVar[ElementRules] = ElementRules(only_moves=True)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        self.require(operand.is_array, "C1", f"the operand is {operand}, not an array", at="operands")
        same = operand.without_layout()
        return Shape.tuple([same, same, Shape(U32)])

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0], operands[0], np.zeros((), np.uint32)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        destination, source, context = results
        emit.copy(destination, operands[0])
        emit.copy(source, operands[0])
        context.store((), emit.constant(0, U32))


@register
class CopyDone(ExecutableOp):
    """The destination of a copy-start.

    Shapes:  (S, S, u32[]) -> S.
    Errors:  C1 the operand is not a copy-start's result.
    """

    opcode = "copy-done"
    start_done: ClassVar[StartDone] = StartDone(completes=("copy-start",))
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    operand_count: ClassVar[OperandCount] = exactly(1)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        elements = operand.elements or ()
        fits = len(elements) == 3 and elements[0].compatible(elements[1]) and elements[2].element_type is U32
        self.require(fits, "C1", f"the operand is {operand}, not a copy-start's (S, S, u32[])", at="operands")
        return elements[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0][0]

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        return (leaves[0][0],)
