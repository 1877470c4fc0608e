"""HLO `while` and `conditional`: instructions that run other computations zero, one or many times."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class While(Op):
    """Run `body` on a value as long as `condition` holds of it."""

    opcode = "while"
    lowering = Lowering.CONTROL
    min_operands = 1
    max_operands = 1
    condition: str = attribute("computation")
    body: str = attribute("computation")


@register
class Conditional(Op):
    """Run one of several computations: by a predicate, or by an index (out of range: the last one)."""

    opcode = "conditional"
    lowering = Lowering.CONTROL
    min_operands = 2
    branch_computations: tuple[str, ...] = attribute("computation_list", default=())
    true_computation: str | None = attribute("computation", default=None)
    false_computation: str | None = attribute("computation", default=None)

    @property
    def branches(self) -> tuple[str, ...]:
        """The computations by branch number; with a predicate, 0 is the true one and 1 the false one."""
        if self.true_computation is not None and self.false_computation is not None:
            return (self.true_computation, self.false_computation)
        return self.branch_computations
