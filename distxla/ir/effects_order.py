"""The order in which the effects of a computation stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module


def effectful_computations(module: Module) -> frozenset[str]:
    """Names of the computations that hold an instruction with effects, directly or through what they call."""
    found: set[str] = set()
    for computation in module.computations:  # called ones stand before their callers
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
    """(earlier, later) names: the edges that keep the effects of a computation in the order in which they stand.

    strict: all of them are one chain, as in a schedule that is given. Otherwise only what `only_waits` may move, and
    only back: it comes behind all that stood before it, but nothing waits for it that doesn't read its result. Each
    device then begins its rounds and transfers in the order of the text.

    Why nobody can wait for ever, or meet something else, that would not in the order of the text: take the graph of all
    devices, whose edges say what must have happened before. Edges from one device to another begin where a device
    reaches a round, sends, executes a recv, ends a recv or calls for the host: all of them stay in order. The end of a
    round, and of a send, has only edges into it: rounds are worked on by those who wait, permutes are copied by who
    comes second, and a message's place is free again after the recv-done (which may stand behind computations, but not
    behind what waits). So on a cycle whatever is executed after such an end was so in the order of the text, too, and
    the cycle would be there already. A round too many ends the device's oldest first: that wait is one which the text
    has no later.
    """
    last: str | None = None
    for instruction in instructions:
        if has_effects(instruction, effectful):
            if last is not None:
                yield last, instruction.name
            if strict or not instruction.op.only_waits:
                last = instruction.name
