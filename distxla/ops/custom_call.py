"""HLO `custom-call`: a routine that HLO knows by name only."""

from __future__ import annotations

from distxla.ir.shape import Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class CustomCall(Op):
    """Call a routine by name."""

    opcode = "custom-call"
    effects = Effects.CUSTOM
    lowering = Lowering.NONE
    needs_shape = True
    window: Window = attribute("window", default=Window())
    dim_labels: ConvolutionDimensions | None = attribute("dim_labels", default=None)
    feature_group_count: int = attribute("int", default=1)
    batch_group_count: int = attribute("int", default=1)
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    padding_type: str = attribute("word", default="PADDING_INVALID")
    to_apply: str | None = attribute("computation", default=None)
    called_computations_list: tuple[str, ...] = attribute("computation_list", default=(), text="called_computations")
    custom_call_target: str = attribute("string")
    operand_layout_constraints: tuple[Shape, ...] | None = attribute("shape_list", default=None)
    custom_call_has_side_effect: bool = attribute("bool", default=False)
    literal: str | None = attribute("raw", default=None)
    output_to_operand_aliasing: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = attribute(
        "aliasing", default=()
    )
    schedule: str = attribute("word", default="SCHEDULE_NONE")
    api_version: str = attribute("word", default="API_VERSION_ORIGINAL")
