"""The order in which the effects of a computation stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module


def effectful_computations(module: Module) -> frozenset[str]:
    """Names of the computations that hold an instruction with effects, directly or through their calls."""
    found: set[str] = set()
    for computation in module.computations:  # called ones precede their callers
        for instruction in computation:
            op = instruction.op
            if not op.effects.is_free or any(name in found for name in op.called_computations):
                found.add(computation.name)
                break
    return frozenset(found)


def has_effects(instruction: Instruction, effectful: frozenset[str]) -> bool:
    """Whether the instruction keeps its place among others with effects; effectful: `effectful_computations`."""
    op = instruction.op
    return not op.effects.is_free or any(name in effectful for name in op.called_computations)


def effects_order(
    instructions: Iterable[Instruction], effectful: frozenset[str], *, strict: bool
) -> Iterator[tuple[str, str]]:
    """(earlier, later) names: the edges that keep the effects of a computation in their order.

    strict: all of them are one chain, as in a given schedule. Otherwise only instructions with `only_waits` may move,
    and only back: each comes behind all that were before it, but only readers of its result wait for it. Each device
    then begins its rounds and transfers in the order of the text.

    Why no device waits for ever, or meets another instruction, that would not in the order of the text: take the graph
    of all devices, whose edges say what must have happened before. Edges from one device to another begin where a
    device reaches a round, sends, executes a recv, ends a recv or calls for the host: all of them stay in order. The
    end of a round, and of a send, has only edges into it: the waiting members work on rounds, the device that is second
    copies a permute, and a message's place is free again after the recv-done (which may be behind computations, but not
    behind instructions that wait). So any instruction of a cycle that is executed after such an end was executed after
    it in the order of the text, too, and the cycle would be there already. A round beyond the limit ends the device's
    oldest first: in the text that wait is not later either.
    """
    last: str | None = None
    for instruction in instructions:
        if has_effects(instruction, effectful):
            if last is not None:
                yield last, instruction.name
            if strict or not instruction.op.only_waits:
                last = instruction.name
