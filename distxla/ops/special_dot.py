"""HLO `ragged-dot` and `scaled-dot`: products with groups of rows and with scaled operands."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class RaggedDot(Op):
    """A product in which one dimension of the left operand is cut into groups of given sizes."""

    opcode = "ragged-dot"
    lowering = Lowering.NONE
    min_operands = 3
    max_operands = 3
    lhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_ragged_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_group_dims: tuple[int, ...] = attribute("int_list", default=())
    operand_precision: tuple[str, ...] = attribute("precision", default=())


@register
class ScaledDot(Op):
    """A product of operands whose blocks carry a scale each."""

    opcode = "scaled-dot"
    lowering = Lowering.NONE
    min_operands = 3
    max_operands = 4
    lhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    lhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_batch_dims: tuple[int, ...] = attribute("int_list", default=())
    rhs_contracting_dims: tuple[int, ...] = attribute("int_list", default=())
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    algorithm: str | None = attribute("word", default=None)
