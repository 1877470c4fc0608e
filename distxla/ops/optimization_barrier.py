"""HLO `opt-barrier`: a border that optimisation does not cross."""

from __future__ import annotations

from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class OptimizationBarrier(Op):
    """The operand itself; nothing moves across."""

    opcode = "opt-barrier"
    lowering = Lowering.ALIAS
    min_operands = 1
    max_operands = 1
