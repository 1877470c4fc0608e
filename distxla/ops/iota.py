"""HLO `iota`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Iota(Op):
    """Each element is its index along one dimension."""

    opcode = "iota"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 0
    max_operands: ClassVar[int | None] = 0
    needs_shape: ClassVar[bool] = True
    iota_dimension: int = attribute("int")
