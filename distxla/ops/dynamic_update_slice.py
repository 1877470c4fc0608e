"""HLO `dynamic-update-slice`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class DynamicUpdateSlice(Op):
    """The operand with a box overwritten."""

    opcode = "dynamic-update-slice"
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = None
    in_place_operand: ClassVar[int | None] = 0
