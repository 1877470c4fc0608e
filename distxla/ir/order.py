"""Orders of a computation's instructions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from distxla.ir.instruction import Instruction


def stable_order(instructions: Sequence[Instruction], edges: Iterable[tuple[str, str]] = ()) -> tuple[Instruction, ...]:
    """The instructions with operands and control predecessors first, otherwise as close to the given order as can be.

    edges: further (earlier, later) pairs of names.  Raises ValueError naming an instruction of a cycle.
    """
    position = {instruction.name: i for i, instruction in enumerate(instructions)}
    after: list[list[int]] = [[] for _ in instructions]
    waiting = [0] * len(instructions)
    for i, instruction in enumerate(instructions):
        before = {position[n] for n in (*instruction.operands, *instruction.control_predecessors)}
        waiting[i] = len(before)
        for j in before:
            after[j].append(i)
    for earlier, later in edges:
        after[position[earlier]].append(position[later])
        waiting[position[later]] += 1
    ready = [i for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(instructions[i])
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(ordered) != len(instructions):
        stuck = next(instructions[i].name for i, count in enumerate(waiting) if count)
        raise ValueError(f"{stuck} waits for itself")
    return tuple(ordered)


def ancestors(instructions: Sequence[Instruction]) -> dict[str, int]:
    """name -> bit set, by position, of all instructions that must come before; operands precede their users."""
    position = {instruction.name: i for i, instruction in enumerate(instructions)}
    found: dict[str, int] = {}
    for instruction in instructions:
        bits = 0
        for name in (*instruction.operands, *instruction.control_predecessors):
            bits |= found[name] | (1 << position[name])
        found[instruction.name] = bits
    return found
