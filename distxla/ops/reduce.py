"""HLO `reduce`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Reduce(Op):
    """Combine the elements along `dimensions` by a computation, starting from an initial value."""

    opcode = "reduce"
    lowering = Lowering.REDUCTION
    min_operands = 2
    dimensions: tuple[int, ...] = attribute("int_list")
    to_apply: str = attribute("computation")
