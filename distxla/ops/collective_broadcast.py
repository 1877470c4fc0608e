"""HLO `collective-broadcast`: every member gets the operand of its group's first member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distxla.ir.attribute import attribute
from distxla.ir.element_type import S32
from distxla.ir.op_traits import OperandCount, RoundRules
from distxla.ir.shape import Shape
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.collective_movement import Movement
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.registry import register


@register
class CollectiveBroadcast(GroupedCollective):
    """Every member gets the operand of its group's first member; a device in no group gets zeros.

    A root that is an operand (`has_dynamic_root=true`, one s32 position in the group for each other operand) is
    checked and not executed.

    Shapes:  operands T_i[D_i] -> T[D] for one operand, (T_0[D_0], ..) for several; a dynamic root s32[n] behind the n.
    Errors:  C1, C2, C5, C7 of the groups and operands.
             C6  no operand.
             C8  a dynamic root that is no s32[n] behind n operands.
    Source:  XLA Operation Semantics, CollectiveBroadcast; StableHLO spec, "collective_broadcast".
    """

    opcode = "collective-broadcast"
    covers_all: ClassVar[bool] = False
    round: ClassVar[RoundRules] = RoundRules(has_groups=True, same_for_all=True)
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    has_dynamic_root: bool = attribute("bool", default=False)

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        if self.has_dynamic_root:
            *operands, root = operands
            self.require(
                operands and root.without_layout() == Shape(S32, (len(operands),)),
                "C8",
                f"has_dynamic_root=true with {len(operands)} operand(s) and the root {root.without_layout()}, "
                f"which is s32[{max(1, len(operands))}] behind at least one",
                at="operands",
            )
        return Shape.one_or_tuple([operand.without_layout() for operand in operands])

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        if self.has_dynamic_root:
            return "this version cannot execute collective-broadcast from a root that is known only at run time"
        return super().obstacle(shape, operands)

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        return tuple(Movement(operand=i, result=i, row=operand.size) for i, operand in enumerate(operands))

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        sent = operands[0]
        return [sent[0] if len(sent) == 1 else tuple(sent)] * len(members)
