"""HLO `domain`: a border between regions of different sharding."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Domain(Op):
    """The operand itself; marks where metadata changes."""

    opcode = "domain"
    lowering = Lowering.ALIAS
    min_operands = 1
    max_operands = 1
    domain: str = attribute("domain")
