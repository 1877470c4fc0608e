"""Which communication is under way where: passes that join instructions let none wait for the end of a pair."""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ops.op import Lowering

# Arrays up to here take so little time that it matters nowhere.
FREE_ELEMENTS = 1024


class PairsUnderWay:
    """The pairs of a computation whose start stands before an instruction and whose end behind it.

    What a module computes there overlaps with the communication; joined with something that stands behind the end, it
    would have to wait for it.
    """

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._open: dict[str, int] = {}  # by instruction, a bit a pair
        starts: dict[str, int] = {}
        now = 0
        for instruction in computation:
            op = instruction.op
            if op.lowering is Lowering.COMMUNICATION and op.completes:
                now &= ~starts.get(instruction.operands[0], 0)
            if now:
                self._open[instruction.name] = now
            if op.lowering is Lowering.COMMUNICATION and op.starts_pair:
                starts[instruction.name] = 1 << len(starts)
                now |= starts[instruction.name]

    def would_end(self, name: str, later: str) -> bool:
        """Whether a pair that is under way at an instruction worth the time has ended at a later one."""
        if not self._open.get(name, 0) & ~self._open.get(later, 0):
            return False
        instruction = self._computation[name]
        touched = (instruction, *self._computation.operands(instruction))
        return any(leaf.size > FREE_ELEMENTS for i in touched for leaf in i.shape.leaves())
