"""HLO `dynamic-slice`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class DynamicSlice(Op):
    """A box of fixed extents at a start given at run time."""

    opcode = "dynamic-slice"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = None
    dynamic_slice_sizes: tuple[int, ...] = attribute("int_list")
