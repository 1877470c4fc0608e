"""HLO `send`, `send-done`, `recv` and `recv-done`: point-to-point transfers."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.effects import Effects
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class Send(Op):
    """Begin to send a value over a channel."""

    opcode = "send"
    effects = Effects.CHANNEL
    lowering = Lowering.NONE
    min_operands = 2
    max_operands = 2
    needs_shape = False
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)


@register
class SendDone(Op):
    """Wait until a send is over."""

    opcode = "send-done"
    effects = Effects.CHANNEL
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = False
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)


@register
class Recv(Op):
    """Begin to receive a value over a channel."""

    opcode = "recv"
    effects = Effects.CHANNEL
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = True
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)


@register
class RecvDone(Op):
    """Wait for a received value."""

    opcode = "recv-done"
    effects = Effects.CHANNEL
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = False
    channel_id: int | None = attribute("int", default=None)
    is_host_transfer: bool = attribute("bool", default=False)
