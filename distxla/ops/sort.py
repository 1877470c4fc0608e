"""HLO `sort` and `topk`: order along a dimension."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Sort(Op):
    """Sort arrays together along a dimension by a comparator."""

    opcode = "sort"
    lowering = Lowering.NONE
    min_operands = 1
    dimensions: tuple[int, ...] = attribute("int_list")
    is_stable: bool = attribute("bool", default=False)
    to_apply: str = attribute("computation")


@register
class TopK(Op):
    """The k largest (or smallest) elements of the last dimension and their indices."""

    opcode = "topk"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    k: int = attribute("int")
    largest: bool = attribute("bool", default=True)
