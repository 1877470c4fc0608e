"""HLO `dot`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Dot(Op):
    """Sum of products over the contracting dimensions, for every index of the batch dimensions."""

    opcode = "dot"
    lowering = Lowering.KERNEL
    min_operands = 2
    max_operands = 2
    lhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    algorithm: str | None = attribute("word", default=None)
