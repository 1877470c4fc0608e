"""HLO `compare`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Compare(Op):
    """Whether two elements stand in a relation."""

    opcode = "compare"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    direction: str = attribute("word")
    comparison: str | None = attribute("comparison", default=None, text="type")
