"""HLO `map`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Map(Op):
    """Apply a scalar computation to the elements of equally shaped arrays."""

    opcode = "map"
    lowering = Lowering.ELEMENT
    min_operands = 1
    dimensions: tuple[int, ...] = attribute("int_list", default=())
    to_apply: str = attribute("computation")
