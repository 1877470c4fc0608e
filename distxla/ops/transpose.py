"""HLO `transpose`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Transpose(Op):
    """Permute dimensions."""

    opcode = "transpose"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    dimensions: tuple[int, ...] = attribute("int_list")
