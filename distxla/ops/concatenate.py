"""HLO `concatenate`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Concatenate(Op):
    """Join arrays along a dimension."""

    opcode = "concatenate"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = None
    dimensions: tuple[int, ...] = attribute("int_list")
