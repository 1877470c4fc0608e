"""HLO `domain`: a border between regions of different sharding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register

T = TypeVar("T")


@register
class Domain(ExecutableOp):
    """The operand itself. Marks where metadata changes.

    Shapes:  T -> T, tuples included.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "domain"
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    operand_count: ClassVar[OperandCount] = exactly(1)
    domain: str = attribute("domain")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return operands[0].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        return tuple(leaves[0])
