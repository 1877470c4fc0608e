"""Rewrite single instructions into cheaper ones with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.broadcast import Broadcast
from distxla.ops.constant import Constant
from distxla.ops.op import Op
from distxla.ops.reshape import Reshape
from distxla.ops.reverse import Reverse
from distxla.ops.slice import Slice
from distxla.ops.transpose import Transpose
from distxla.passes.pipeline import Pass
from distxla.passes.rewriter import Rewriter, replaced

OpType = TypeVar("OpType", bound=Op)


@dataclass
class Site:
    """One instruction about to be simplified; operands are simplified already."""

    rewriter: Rewriter
    instruction: Instruction

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    def operand(self, number: int = 0) -> Instruction:
        return self.rewriter[self.instruction.operands[number]]

    def operand_of(self, instruction: Instruction, number: int = 0) -> Instruction:
        return self.rewriter[instruction.operands[number]]

    def literal(self, number: int) -> np.ndarray[Any, Any] | None:
        """The operand's value if it is a constant array whose text is there."""
        op = self.operand(number).op
        return op.literal.array if isinstance(op, Constant) else None

    def scalar(self, number: int) -> Any:
        """The one value that all elements of the operand have, as a NumPy scalar; None where that isn't known."""
        found = self.operand(number)
        while not isinstance(found.op, Constant):
            if not isinstance(found.op, SPREADING):
                return None
            found = self.operand_of(found)
        array = found.op.literal.array
        if array is None or array.size == 0:
            return None
        first = array.reshape(-1)[0]
        if array.size > 1 and array.tobytes() != first.tobytes() * array.size:
            return None
        return first

    def instead(self, op: Op, *operands: str, shape: Shape | None = None) -> Instruction:
        """The instruction with another op and other operands, under its own name."""
        return self.instruction.replace(op=op, operands=operands, shape=shape or self.shape)


# A rule gives the instruction that replaces this one, the name of an existing one whose value it equals, or None.
Rule = Callable[[Any, Site], Instruction | str | None]
RULES: dict[type[Op], list[Rule]] = {}
# Every element of the result is some element of the operand.
SPREADING: tuple[type[Op], ...] = (Broadcast, Reshape, Transpose, Slice, Reverse)


def rule(*op_classes: type[Op]) -> Callable[[Rule], Rule]:
    """Enter a rule for the instructions of these op classes."""

    def enter(function: Rule) -> Rule:
        for op_class in op_classes:
            RULES.setdefault(op_class, []).append(function)
        return function

    return enter


class Simplify(Pass):
    """Apply the rules of the simplify_* files, and fold small constants.

    One walk in order suffices: a rule sees simplified operands, and its result is tried again.
    """

    name: ClassVar[str] = "simplify"

    def run(self, module: Module) -> Module:
        # The tables of rules; they import this file.
        from distxla.passes import (  # noqa: F401
            fold_constants,
            simplify_arithmetic,
            simplify_contractions,
            simplify_data,
        )

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
        computations = replaced(module.computations, new)
        return module if computations is None else module.replace(computations=computations)


def _simplified(
    rewriter: Rewriter, instruction: Instruction, fold: Callable[[Site], Literal | None]
) -> Instruction | str | None:
    if instruction.control_predecessors or instruction.op.is_parameter:
        return None  # it holds a place in an order, not only a value
    site = Site(rewriter, instruction)
    for found in RULES.get(type(instruction.op), ()):
        outcome = found(instruction.op, site)
        if outcome is not None:
            return outcome
    literal = fold(site)
    if literal is not None:
        return site.instead(Constant(literal=literal))
    return None
