"""HLO `pad`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.window import PaddingDimension
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Pad(Op):
    """Pad at edges and between elements."""

    opcode = "pad"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    padding: tuple[PaddingDimension, ...] = attribute("padding", default=())
