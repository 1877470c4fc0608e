"""HLO `after-all` and `add-dependency`: order without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, exactly
from distxla.ir.shape import Called, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp, FirstOperand
from distxla.ops.support.registry import register


@register
class AfterAll(ExecutableOp):
    """A token that comes after all its operands.

    Shapes:  any number of token[] -> token[]; in HLO's text there may be values of any other shape among them.
    Source:  StableHLO spec, "after_all"; Operation Semantics, "AfterAll"; XLA's HLO verifier, which takes any operands.
    """

    opcode: ClassVar[str] = "after-all"
    lowering: ClassVar[Lowering] = Lowering.ALIAS

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return Shape.token()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return None


@register
class AddDependency(FirstOperand):
    """The first operand, but not before the second.

    Shapes:  (T, token[]) as two operands -> T.
    Errors:  C1 the second operand is no token.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "add-dependency"
    operand_count: ClassVar[OperandCount] = exactly(2)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        self.require(operands[1].is_token, "C1", f"operand 1 is {operands[1]}, not token[]", at="operands")
        return super().infer_shape(operands, called)
