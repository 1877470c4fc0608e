"""HLO `scan`: a loop along one dimension that carries values."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Scan(Op):
    """Run a computation along a dimension, carrying values from step to step."""

    opcode = "scan"
    lowering = Lowering.NONE
    min_operands = 1
    needs_shape = True
    dimensions: tuple[int, ...] = attribute("int_list")
    is_reverse: bool = attribute("bool", default=False)
    is_associative: str | None = attribute("word", default=None)
    num_carries: int | None = attribute("int", default=None)
    to_apply: str = attribute("computation")
