"""HLO `infeed` and `outfeed`: queues between a device and the host."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Infeed(Op):
    """Take the next item of the device's input queue."""

    opcode = "infeed"
    effects = Effects.FEED
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = True
    infeed_config: str = attribute("string", default="")


@register
class Outfeed(Op):
    """Append a value to the device's output queue."""

    opcode = "outfeed"
    effects = Effects.FEED
    lowering = Lowering.NONE
    min_operands = 2
    max_operands = 2
    outfeed_shape: str | None = attribute("raw", default=None)
    outfeed_config: str = attribute("string", default="")
