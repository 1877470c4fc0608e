"""HLO `collective-broadcast`: everything the project knows about the op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distxla.ir.shape import Shape
from distxla.ops.collective import GroupedCollective, one_or_tuple
from distxla.ops.evaluation import Evaluation
from distxla.ops.movement import Movement
from distxla.ops.registry import register


@register
class CollectiveBroadcast(GroupedCollective):
    """Every member gets the operand of its group's first member; who is in no group gets zeros.

    Shapes:  operands T_i[D_i] -> T[D] for one operand, (T_0[D_0], ..) for several.
    Errors:  C1, C2, C5, C7 of the groups and operands.
             C6  no operand.
    Source:  XLA Operation Semantics, CollectiveBroadcast; StableHLO spec, "collective_broadcast".
    """

    opcode = "collective-broadcast"
    covers_all = False
    same_for_all = True
    min_operands = 1

    def result_shape(self, operands: Sequence[Shape], size: int) -> Shape:
        return one_or_tuple([operand.without_layout() for operand in operands])

    def movements(self, operands: Sequence[Shape], size: int) -> tuple[Movement, ...]:
        return tuple(Movement(operand=i, result=i, row=operand.size) for i, operand in enumerate(operands))

    def evaluate_group(
        self, members: tuple[int, ...], operands: Sequence[tuple[Any, ...]], run: Evaluation
    ) -> Sequence[Any]:
        sent = operands[0]
        return [sent[0] if len(sent) == 1 else tuple(sent)] * len(members)
