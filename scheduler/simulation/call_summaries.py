"""Counts and summarises the executions of calls, without following each of them.

f1 calls f0 twice, f2 calls f1 twice, … f30: a billion executions of f0's instructions, of which one represents all.
"""

from __future__ import annotations

from functools import cached_property

from distxla.ir.effects import Effects
from distxla.ir.effects_order import has_effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.lazy_dataclass import dataclass, field

FOLLOWED = 20_000  # executions in one call that are followed one by one
COPIES = 8  # how often each instruction is executed in a call that is summed up


@dataclass
class CallSummaries:
    """effectful: names of the computations that act on others (`effectful_computations`)."""

    module: Module
    effectful: frozenset[str]
    _too_long: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def executions(self) -> dict[str, int]:
        """By computation the instructions of one execution; loops count one iteration, conditionals all branches."""
        found: dict[str, int] = {}
        for computation in self.module.computations:  # called ones precede their callers
            count = 0
            for instruction in computation:
                count += 1 + sum(found[name] for name in instruction.op.called_computations)
            found[computation.name] = count
        return found

    def is_too_long(self, call: Instruction) -> bool:
        """Whether a call executes more than is followed one by one, and most of it is copies."""
        name = call.op.called_computations[0]
        found = self._too_long.get(name)
        if found is None:
            count = self.executions[name]
            found = count > FOLLOWED and count > COPIES * sum(len(c.instructions) for c in self.module.reached(name))
            self._too_long[name] = found
        return found

    def collectives(self, name: str) -> list[tuple[str, Instruction]] | None:
        """(computation, instruction): each collective that the computation executes, once; None where it communicates
        otherwise, or where its executions depend on values."""
        found: list[tuple[str, Instruction]] = []
        for computation in self.module.reached(name):
            if computation.name not in self.effectful:
                continue
            for instruction in computation:
                if not has_effects(instruction, self.effectful):
                    continue
                op = instruction.op
                if op.lowering is Lowering.CALL and op.effects.is_free:
                    continue
                whole = op.is_collective and not op.start_done.starts_pair and not op.start_done.completes
                if not whole or op.effects is not Effects.COLLECTIVE:
                    return None
                found.append((computation.name, instruction))
        return found

    @cached_property
    def times(self) -> dict[str, int]:
        """By computation how many collectives one execution of it executes; for messages."""
        found: dict[str, int] = {}
        for computation in self.module.computations:
            found[computation.name] = sum(
                i.op.is_collective + sum(found[name] for name in i.op.called_computations)
                for i in computation
                if has_effects(i, self.effectful)
            )
        return found


__all__ = ["CallSummaries"]
