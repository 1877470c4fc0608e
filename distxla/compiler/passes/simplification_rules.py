"""The table of simplification rules, and the interface through which a rule looks at its instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.broadcast import Broadcast
from distxla.ops.reshape import Reshape
from distxla.ops.reverse import Reverse
from distxla.ops.slice import Slice
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.transpose import Transpose


@dataclass
class RewriteSite:
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
        """The operand's value if it is a constant array whose text is known."""
        array: np.ndarray[Any, Any] | None = self.operand(number).op.constant_array
        return array

    def scalar(self, number: int) -> Any:
        """The one value that all elements of the operand have, as a NumPy scalar; None where that isn't known."""
        found = self.operand(number)
        while not found.op.role.is_constant:
            if not isinstance(found.op, SPREADING):
                return None
            found = self.operand_of(found)
        array = found.op.constant_array
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
Rule = Callable[[Any, RewriteSite], Instruction | str | None]
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
