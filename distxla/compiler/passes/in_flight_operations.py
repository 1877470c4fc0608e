"""Which communication is in flight where: passes that join instructions take none away from between start and done."""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ir.op import Lowering

# Arrays up to here take so little time that it matters nowhere.
FREE_ELEMENTS = 1024


class InFlightOperations:
    """The pairs of a computation whose start is before an instruction and whose end is behind it.

    Instructions that a module computes there overlap with the communication.
    """

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._open: dict[str, int] = {}  # by instruction, a bit a pair
        starts: dict[str, int] = {}
        now = 0
        for instruction in computation:
            op = instruction.op
            if op.lowering is Lowering.COMMUNICATION and op.start_done.completes:
                now &= ~starts.get(instruction.operands[0], 0)
            if now:
                self._open[instruction.name] = now
            if op.lowering is Lowering.COMMUNICATION and op.start_done.starts_pair:
                starts[instruction.name] = 1 << len(starts)
                now |= starts[instruction.name]

    def end_between(self, name: str, later: str) -> bool:
        """Whether a pair that is in flight at an instruction has ended at a later one: computed there, it would no
        longer overlap. Not for instructions that take hardly any time."""
        return bool(self._open.get(name, 0) & ~self._open.get(later, 0)) and self._takes_time(name)

    def separate(self, first: str, second: str) -> bool:
        """Whether other pairs are in flight at two instructions: computed together, one of them would wait for the end
        of a pair or delay a start."""
        mine, other = self._open.get(first, 0), self._open.get(second, 0)
        return mine != other and any(self._takes_time(n) for n, pairs in ((first, mine), (second, other)) if pairs)

    def _takes_time(self, name: str) -> bool:
        instruction = self._computation[name]
        touched = (instruction, *self._computation.operands(instruction))
        return any(leaf.size > FREE_ELEMENTS for i in touched for leaf in i.shape.leaves())
