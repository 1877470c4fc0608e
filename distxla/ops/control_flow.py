"""HLO `while` and `conditional`: instructions that run other computations zero, one or many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.element_type import PRED, S32
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, OpRole, exactly
from distxla.ir.shape import Called, ProgramShape, Shape
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@register
class While(ExecutableOp):
    """Run `body` on a value as long as `condition` holds of it.

    Shapes:  T -> T with condition T -> pred[] and body T -> T; T is mostly a tuple.
    Errors:  C1 the condition's signature; C2 the body's.
    Source:  StableHLO spec, "while"; Operation Semantics, "While".
    """

    opcode: ClassVar[str] = "while"
    role: ClassVar[OpRole] = OpRole(is_loop=True)
    lowering: ClassVar[Lowering] = Lowering.CONTROL
    operand_count: ClassVar[OperandCount] = exactly(1)
    condition: str = attribute("computation")
    body: str = attribute("computation")

    @property
    def loop_body(self) -> str:  # type: ignore[override]
        return self.body

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        value = operands[0]
        for rule, name, result, at in (
            ("C1", self.condition, Shape(PRED), "condition"),
            ("C2", self.body, value, "body"),
        ):
            have = called(name)
            fits = len(have.parameters) == 1 and have.parameters[0].compatible(value) and have.result.compatible(result)
            self.require(
                fits,
                rule,
                f"{name} must be ({value}) -> {result}, it is {signature(have)}",
                at=at,
            )
        return value.without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        value = operands[0]
        while run.call(self.condition, value):
            value = run.call(self.body, value)
        return value


@register
class Conditional(ExecutableOp):
    """Run one of several computations: by a predicate, or by an index.

    Shapes:  (pred[], T_true, T_false) or (s32[], T_0, T_1, ..) -> U, where branch i is T_i -> U. An index out of range
             runs the last branch.
    Errors:  C1 no branch, or as many operands as don't fit; C2 a branch's parameter; C3 branches of different results;
             C5 the index.
    Source:  StableHLO spec, "if" and "case"; Operation Semantics, "Conditional".
    """

    opcode: ClassVar[str] = "conditional"
    role: ClassVar[OpRole] = OpRole(is_conditional=True)
    lowering: ClassVar[Lowering] = Lowering.CONTROL
    operand_count: ClassVar[OperandCount] = OperandCount(least=2)
    branch_computations: tuple[str, ...] = attribute("computation_list", default=())
    true_computation: str | None = attribute("computation", default=None)
    false_computation: str | None = attribute("computation", default=None)

    @property
    def branches(self) -> tuple[str, ...]:  # type: ignore[override]
        """The computations by branch number; with a predicate, 0 is the true one and 1 the false one."""
        if self.true_computation is not None and self.false_computation is not None:
            return (self.true_computation, self.false_computation)
        return self.branch_computations

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        selector, values, branches = operands[0], operands[1:], self.branches
        by_predicate = self.true_computation is not None
        at = "true_computation" if by_predicate else "branch_computations"
        named = (self.true_computation is not None, self.false_computation is not None, bool(self.branch_computations))
        self.require(
            named in ((True, True, False), (False, False, True)),
            "C1",
            "needs either branch_computations or both true_computation and false_computation",
            at=at,
        )
        self.require(
            len(values) == len(branches),
            "C1",
            f"has {len(branches)} branches and values for {len(values)}",
            at="operands",
        )
        wants = PRED if by_predicate else S32
        self.require(
            selector.is_array and selector.rank == 0 and selector.dtype is wants,
            "C5",
            f"the index is {selector}, not {wants}[] as {at} needs it",
            at="operands",
        )
        for name, value in zip(branches, values):
            have = called(name)
            self.require(
                len(have.parameters) == 1 and have.parameters[0].compatible(value),
                "C2",
                f"{name} must take ({value}), it is {signature(have)}",
                at=at,
            )
            self.require(
                have.result.compatible(called(branches[0]).result),
                "C3",
                f"{name} gives {have.result}, {branches[0]} gives {called(branches[0]).result}",
                at=at,
            )
        return called(branches[0]).result.without_layout()

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        number = self.branch_of(operands[0])
        return run.call(self.branches[number], operands[1 + number])

    def branch_of(self, selector: Any) -> int:
        """The number of the branch that a selector's value, a bool or an integer, runs."""
        if np.asarray(selector).dtype == bool:
            return 0 if selector else 1
        last = len(self.branches) - 1
        return int(selector) if 0 <= selector <= last else last


def signature(shape: ProgramShape) -> str:
    """`(f32[], s32[2]) -> f32[]`."""
    return f"({', '.join(map(str, shape.parameters))}) -> {shape.result}"
