"""HLO `tuple` and `get-tuple-element`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Tuple(Op):
    """Group the operands, none included; a tuple may hold tuples."""

    opcode = "tuple"
    lowering: ClassVar[Lowering] = Lowering.ALIAS


@register
class GetTupleElement(Op):
    """Element `index` of a tuple."""

    opcode = "get-tuple-element"
    lowering: ClassVar[Lowering] = Lowering.ALIAS
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1
    index: int = attribute("int")
