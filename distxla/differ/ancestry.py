"""Ways from an array of the sharded run to those that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from distxla.differ.alignment import CONSTANT, ArrayPair, Twins
from distxla.differ.op_kinds import keeps_whole, moves_between_devices
from distxla.differ.recording import Recorded
from distxla.differ.relations import Relation
from distxla.differ.source_lines import Frame, frames, written_as

_MOST_BEFORE: Final = 400  # arrays in which the nearest one of a kind is looked for


class Ancestry:
    """twins: all arrays of both runs."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins

    def operands(self, pair: ArrayPair) -> list[tuple[ArrayPair, Relation]]:
        """Those whose relation is known."""
        return [(o, o.relation) for o in self.twins.operands(pair.array) if o.relation is not None]

    def telling(self, pair: ArrayPair) -> list[tuple[ArrayPair, Relation]]:
        """Those of them that are no constants."""
        return [(operand, relation) for operand, relation in self.operands(pair) if relation is not CONSTANT]

    def wrong_before(self, number: int) -> set[int]:
        """The array, and those on a way of wrong ones to it."""
        pairs, seen, waiting = self.twins.pairs, {number}, [number]
        while waiting:
            for n in pairs[waiting.pop()].array.made_of:
                if n not in seen and not pairs[n].is_right:
                    seen.add(n)
                    waiting.append(n)
        return seen

    def first_exchanged(self, pair: ArrayPair) -> ArrayPair | None:
        """The first of the wrong arrays before this one, itself included, that devices have exchanged."""
        pairs = self.twins.pairs
        numbers = [n for n in self.wrong_before(pair.array.number) if _is_exchanged(pairs[n])]
        return pairs[min(numbers)] if numbers else None

    def nearest_exchanged(self, pair: ArrayPair) -> ArrayPair | None:
        """The nearest array before this one that devices have exchanged."""
        return self._nearest(pair, lambda one: one is not pair and _is_exchanged(one))

    def nearest_line(self, pair: ArrayPair) -> str | None:
        """The line of the array, else of what it is made of, the nearest one first."""
        found = self._nearest(pair, lambda one: line_of(one.array) is not None)
        return None if found is None else line_of(found.array)

    def _nearest(self, pair: ArrayPair, is_wanted: Callable[[ArrayPair], bool]) -> ArrayPair | None:
        seen, waiting = {pair.array.number}, [pair.array.number]
        while waiting and len(seen) < _MOST_BEFORE:
            number = max(waiting)
            waiting.remove(number)
            if is_wanted(self.twins.pairs[number]):
                return self.twins.pairs[number]
            for n in self.twins.pairs[number].array.made_of:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return None

    def start(self, pair: ArrayPair) -> ArrayPair:
        """The first array with the relation that this one has, upwards, up to a collective."""
        while pair.relation is not None and not pair.array.instruction.op.is_collective:
            before = [o for o, relation in self.operands(pair) if _is_alike(relation, pair.relation)]
            if not before:
                break
            pair = before[0]
        return pair

    def moved_from(self, pair: ArrayPair) -> ArrayPair:
        """The first array with these values, upwards through what only moves them."""
        while keeps_whole(pair.array.instruction.op) and not pair.array.instruction.op.is_collective:
            before = [operand for operand, _ in self.operands(pair) if operand.twin is pair.twin]
            if not before:
                break
            pair = before[0]
        return pair

    def arises(self, pair: ArrayPair, use: ArrayPair | None) -> tuple[ArrayPair, str | None]:
        """The array from which on values are partial, and the line at which they can still be combined."""
        start = self.start(pair)
        line = line_of(start.array)
        if use is None or "transpose(" not in written_as(start.array.instruction):
            return start, line
        return start, common_line(start.array, use.array) or line

    def is_older(self, value: Recorded, wanted: Recorded) -> bool:
        """Whether in the unsharded run what is wanted is made of the value, in however many steps."""
        seen, waiting = {wanted.number}, [wanted.number]
        while waiting:
            for n in self.twins.whole[waiting.pop()].made_of:
                if n == value.number:
                    return True
                if n > value.number and n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return False


def line_of(array: Recorded) -> str | None:
    """`file.py:12`."""
    found = frames(array.module, array.instruction)
    return found[0].line if found else None


def common_line(array: Recorded, use: Recorded) -> str | None:
    """The array's line in the innermost function that also holds the use of it: of a gradient where it is asked for."""
    users = {_function(frame) for frame in frames(use.module, use.instruction)}
    for frame in frames(array.module, array.instruction):
        if _function(frame) in users:
            return frame.line
    return None


def _function(frame: Frame) -> tuple[str, str]:
    return frame.function, frame.line.rpartition(":")[0]


def _is_exchanged(pair: ArrayPair) -> bool:
    return moves_between_devices(pair.array.instruction.op)


def _is_alike(one: Relation, other: Relation) -> bool:
    if (one.kind, one.over, one.times) != (other.kind, other.over, other.times):
        return False
    return one.over is not None or one.offsets == other.offsets
