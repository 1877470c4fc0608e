"""HLO `parameter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.errors import InternalError
from distxla.ir.attribute import attribute
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, OpRole, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class Parameter(ExecutableOp):
    """Argument `number` of the computation: `parameter(number)`.

    Errors:  C1 the number is negative; evaluating it (the evaluation of the computation binds it).
    """

    opcode = "parameter"
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    operand_count: ClassVar[OperandCount] = exactly(0)
    needs_shape: ClassVar[bool] = True
    role: ClassVar[OpRole] = OpRole(is_parameter=True, given_by_caller=True)
    number: int = attribute("number")

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> None:
        self.require(self.number >= 0, "C1", f"the parameter's number is {self.number}", at="operands")

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        raise InternalError(f"parameter {self.number} has no value of its own: the caller of a computation binds it")
