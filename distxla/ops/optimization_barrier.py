"""HLO `opt-barrier`: a border that optimisation does not cross."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register

T = TypeVar("T")


@register
class OptimizationBarrier(ExecutableOp):
    """The operand itself. Nothing is computed on one side that the other side asks for.

    Shapes:  T -> T, tuples included.
    Source:  StableHLO spec, "optimization_barrier"; Operation Semantics, "OptimizationBarrier".
    """

    opcode: ClassVar[str] = "opt-barrier"
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    operand_count: ClassVar[OperandCount] = exactly(1)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return operands[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        return tuple(leaves[0])
