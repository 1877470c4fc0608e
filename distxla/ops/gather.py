"""HLO `gather`."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Gather(Op):
    """Windows of the operand at starts given by an array."""

    opcode = "gather"
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    min_operands: ClassVar[int] = 2
    max_operands: ClassVar[int | None] = 2
    offset_dims: tuple[int, ...] = attribute("int_list")
    collapsed_slice_dims: tuple[int, ...] = attribute("int_list")
    start_index_map: tuple[int, ...] = attribute("int_list")
    operand_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    start_indices_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    index_vector_dim: int = attribute("int")
    slice_sizes: tuple[int, ...] = attribute("int_list")
    indices_are_sorted: bool = attribute("bool", default=False)
