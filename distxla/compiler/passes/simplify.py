"""Rewrite single instructions into cheaper ones with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from distxla.compiler.passes import fold_constants, simplify_arithmetic, simplify_contractions, simplify_data  # noqa: F401
from distxla.compiler.passes.simplification_rules import RULES, RewriteSite
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ops.constant import Constant
from distxla.ops.support.rewriter import Rewriter
from distxla.rewrites.step import Pass


class Simplify(Pass):
    """Apply the rules of the simplify_* files, and fold small constants.

    One walk in order suffices: a rule sees simplified operands, and its result is tried again.
    """

    name: ClassVar[str] = "simplify"

    def run(self, module: Module) -> Module:
        new = []
        for computation in module.computations:
            rewriter = Rewriter(computation)
            for old in computation:
                instruction = rewriter.current(old)
                while True:
                    outcome = _simplified(rewriter, instruction, fold_constants.folded)
                    if not isinstance(outcome, Instruction):
                        break
                    instruction = outcome
                if outcome is None:
                    rewriter.keep(instruction)
                else:
                    rewriter.forward(old.name, outcome)
            new.append(rewriter.finish())
        return module.with_computations(new)


def _simplified(
    rewriter: Rewriter, instruction: Instruction, fold: Callable[[RewriteSite], Literal | None]
) -> Instruction | str | None:
    if instruction.control_predecessors or instruction.op.role.is_parameter:
        return None  # it holds a place in an order, not only a value
    site = RewriteSite(rewriter, instruction)
    for found in RULES.get(type(instruction.op), ()):
        outcome = found(instruction.op, site)
        if outcome is not None:
            return outcome
    literal = fold(site)
    if literal is not None:
        return site.instead(Constant(literal=literal))
    return None
