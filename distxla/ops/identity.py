"""HLO `replica-id` and `partition-id`: who am I."""

from __future__ import annotations

from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class ReplicaId(Op):
    """The device's replica number."""

    opcode = "replica-id"
    lowering = Lowering.ELEMENT
    max_operands = 0


@register
class PartitionId(Op):
    """The device's partition number."""

    opcode = "partition-id"
    lowering = Lowering.ELEMENT
    max_operands = 0
