"""HLO `reduce-window`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ir.window import Window
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class ReduceWindow(Op):
    """Combine the elements of every placement of a window."""

    opcode = "reduce-window"
    lowering = Lowering.KERNEL
    min_operands = 2
    window: Window = attribute("window", default=Window())
    to_apply: str = attribute("computation")
