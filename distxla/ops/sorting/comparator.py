"""Comparators whose order is that of keys: a < b where key(a) < key(b), or where several keys do so in turn."""

from __future__ import annotations

from typing import Any

from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Op
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.registry import op_class


@dataclass(frozen=True)
class SortKey:
    """value: the comparator's instruction that computes the key, of the first elements or of the second ones.

    comparison: as of `compare`.  descending: whether larger keys come first.
    """

    value: str
    comparison: str
    descending: bool


def sort_keys(comparator: Computation) -> tuple[SortKey, ...] | None:
    """The keys of a comparator (a_0, b_0, a_1, b_1, ..), most significant first; None if its order is not that of keys.

    Found are f(a) < f(b) and f(a) > f(b) where both sides are computed by the same instructions, and such a comparison
    that lets another comparator decide where its keys are equal.
    """
    return _Comparator(comparator).keys(comparator.root_instruction)


class _Comparator:
    """sides: of each instruction, whether it is computed from the first elements (0), the second ones (1), or neither
    (None); absent if from both.  forms: equal numbers for values computed in the same way, from whichever side.
    """

    def __init__(self, comparator: Computation) -> None:
        self.comparator = comparator
        self.sides: dict[str, int | None] = {}
        self.forms: dict[str, int] = {}
        known: dict[Any, int] = {}
        for instruction in comparator:
            op = instruction.op
            form: Any
            if op.role.is_parameter:
                number: int = op.number  # type: ignore[attr-defined]
                form, sides = ("parameter", number // 2), {number % 2}
            elif op.effects is not Effects.PURE or not all(name in self.sides for name in instruction.operands):
                continue
            else:
                form = (op, instruction.shape.without_layout(), *(self.forms[name] for name in instruction.operands))
                sides = {side for name in instruction.operands if (side := self.sides[name]) is not None}
            if len(sides) < 2:
                self.sides[instruction.name] = next(iter(sides), None)
                self.forms[instruction.name] = known.setdefault(form, len(known))

    def keys(self, root: Instruction) -> tuple[SortKey, ...] | None:
        operands = self.comparator.operands(root)
        if (key := self.strict(root)) is not None:
            return (key,)
        if isinstance(root.op, op_class("or")):
            # a < b or (a == b and the rest)
            for first, second in (operands, operands[::-1]):
                if isinstance(second.op, op_class("and")):
                    both = self.comparator.operands(second)
                    for equal, rest in (both, both[::-1]):
                        if (found := self.refined(first, equal, rest)) is not None:
                            return found
        if isinstance(root.op, op_class("select")):
            # a == b ? the rest : a < b, or a != b ? a < b : the rest
            condition, on_true, on_false = operands
            return self.refined(on_false, condition, on_true) or self.refined(on_true, condition, on_false, "NE")
        return None

    def refined(
        self, first: Instruction, equal: Instruction, rest: Instruction, direction: str = "EQ"
    ) -> tuple[SortKey, ...] | None:
        """The keys where `first` compares by a key and `rest` those elements whose keys are the same."""
        key = self.strict(first)
        op: Any = equal.op
        if key is None or not _is_comparison(op) or op.direction != direction:
            return None
        pair = self.pair(equal)
        if pair is None or self.forms[pair[0]] != self.forms[key.value] or self.comparison(equal) != key.comparison:
            return None
        others = self.keys(rest)
        return None if others is None else (key, *others)

    def strict(self, instruction: Instruction) -> SortKey | None:
        """The key of f(a) < f(b), whichever way round it is written."""
        op: Any = instruction.op
        if not _is_comparison(op) or op.direction not in ("LT", "GT"):
            return None
        pair = self.pair(instruction)
        if pair is None:
            return None
        return SortKey(pair[0], self.comparison(instruction), (op.direction == "GT") == (self.sides[pair[0]] == 0))

    def pair(self, comparison: Instruction) -> tuple[str, str] | None:
        """The operands of a comparison of the first elements' key with the second ones', in either order."""
        left, right = comparison.operands
        known = {self.sides.get(left), self.sides.get(right)} == {0, 1}
        return (left, right) if known and self.forms[left] == self.forms[right] else None

    def comparison(self, instruction: Instruction) -> str:
        op: Any = instruction.op
        kind: str = op.comparison_of(self.comparator.operands(instruction)[0].shape.dtype)
        return kind


def _is_comparison(op: Op) -> bool:
    return isinstance(op, op_class("compare"))
