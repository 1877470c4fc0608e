"""HLO `opt-barrier`: a border that optimisation does not cross."""

from __future__ import annotations

from typing import ClassVar

from distxla.ops.support.executable import FirstOperand
from distxla.ops.support.registry import register


@register
class OptimizationBarrier(FirstOperand):
    """The operand itself. Nothing is computed on one side that the other side asks for.

    Shapes:  T -> T, tuples included.
    Source:  StableHLO spec, "optimization_barrier"; Operation Semantics, "OptimizationBarrier".
    """

    opcode: ClassVar[str] = "opt-barrier"
