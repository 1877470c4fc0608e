"""HLO `after-all` and `add-dependency`: order without data."""

from __future__ import annotations

from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class AfterAll(Op):
    """A token that comes after all its operands."""

    opcode = "after-all"
    lowering = Lowering.ALIAS


@register
class AddDependency(Op):
    """The first operand, not before the second."""

    opcode = "add-dependency"
    lowering = Lowering.ALIAS
    min_operands = 2
    max_operands = 2
