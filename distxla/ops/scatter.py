"""HLO `scatter`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Scatter(Op):
    """Combine updates into slices of arrays whose starts an index array gives."""

    opcode = "scatter"
    lowering = Lowering.KERNEL
    min_operands = 3
    update_window_dims: tuple[int, ...] = attribute("int_list")
    inserted_window_dims: tuple[int, ...] = attribute("int_list")
    scatter_dims_to_operand_dims: tuple[int, ...] = attribute("int_list")
    input_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    scatter_indices_batching_dims: tuple[int, ...] = attribute("int_list", default=())
    index_vector_dim: int = attribute("int")
    indices_are_sorted: bool = attribute("bool", default=False)
    unique_indices: bool = attribute("bool", default=False)
    to_apply: str = attribute("computation")
