"""HLO `tuple` and `get-tuple-element`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering, T
from distxla.ir.op_traits import OperandCount, OpRole, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Tuple(ExecutableOp):
    """Group the operands, none included; a tuple may hold tuples.

    Shapes:  S0, S1, .. -> (S0, S1, ..).
    """

    opcode = "tuple"
    role: ClassVar[OpRole] = OpRole(is_tuple=True)
    lowering: ClassVar[Lowering] = Lowering.ALIAS

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return Shape.tuple([operand.without_layout() for operand in operands])

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        return tuple(leaf for operand in leaves for leaf in operand)


@register
class GetTupleElement(ExecutableOp):
    """Element `index` of a tuple.

    Shapes:  (S0, S1, ..) -> S[index].
    Errors:  C1 `index` is not the number of an element; the operand is not a tuple.
    """

    opcode = "get-tuple-element"
    role: ClassVar[OpRole] = OpRole(is_tuple_element=True)
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    operand_count: ClassVar[OperandCount] = exactly(1)
    index: int = attribute("int")

    @property
    def element_index(self) -> int:  # type: ignore[override]
        return self.index

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        (operand,) = operands
        elements = operand.elements
        if elements is None:
            raise self.violation("C1", f"the operand is {operand}, not a tuple", at="operands")
        self.require(
            0 <= self.index < len(elements), "C1", f"index={self.index} of a tuple of {len(elements)}", at="index"
        )
        return elements[self.index].without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return operands[0][self.index]

    def result_leaves(self, operands: Sequence[Shape], leaves: Sequence[Sequence[T]]) -> tuple[T, ...]:
        return tuple(leaves[0][operands[0].leaves_of(self.index)])
