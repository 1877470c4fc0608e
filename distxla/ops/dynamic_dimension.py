"""HLO `get-dimension-size` and `set-dimension-size`: extents known at run time only."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class GetDimensionSize(Op):
    """The run-time extent of a dimension."""

    opcode = "get-dimension-size"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    dimensions: tuple[int, ...] = attribute("int_list")


@register
class SetDimensionSize(Op):
    """The same array with another run-time extent."""

    opcode = "set-dimension-size"
    lowering = Lowering.NONE
    min_operands = 2
    max_operands = 2
    dimensions: tuple[int, ...] = attribute("int_list")
