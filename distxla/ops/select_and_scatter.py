"""HLO `select-and-scatter`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ir.window import Window
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class SelectAndScatter(Op):
    """Add every source element to the operand's element which the window's selection chose."""

    opcode = "select-and-scatter"
    lowering = Lowering.KERNEL
    min_operands = 3
    max_operands = 3
    window: Window = attribute("window", default=Window())
    select: str = attribute("computation")
    scatter: str = attribute("computation")
