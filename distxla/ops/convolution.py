"""HLO `convolution`: everything the project knows about the op."""

from __future__ import annotations

from distxla.ir.window import ConvolutionDimensions, Window
from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Convolution(Op):
    """Sum of products of a window of the input with a kernel, for every window and output feature."""

    opcode = "convolution"
    lowering = Lowering.KERNEL
    min_operands = 2
    max_operands = 2
    window: Window = attribute("window", default=Window())
    dim_labels: ConvolutionDimensions = attribute("dim_labels")
    feature_group_count: int = attribute("int", default=1)
    batch_group_count: int = attribute("int", default=1)
    convolution_kind: str | None = attribute("word", default=None)
    sparsity_config: str | None = attribute("raw", default=None)
    operand_precision: tuple[str, ...] = attribute("precision", default=())
