"""HLO `slice`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.window import SliceDimension
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Slice(Op):
    """A strided box of the operand."""

    opcode = "slice"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    slice: tuple[SliceDimension, ...] = attribute("slice")
