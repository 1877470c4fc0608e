"""HLO `select`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Select(Op):
    """The second operand where the first is true, else the third."""

    opcode = "select"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 3
    max_operands: ClassVar[int | None] = 3
