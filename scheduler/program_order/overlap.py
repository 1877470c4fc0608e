"""Asynchronous pairs: starts of rounds and transfers come early, their dones late, and computations between.

List scheduling with one clock, which counts the bytes that instructions touch. Starts come first, each after its
operands. A done, and readers of its result, are available only some time after the start: until then everything else
goes first, in the given order. Then the done comes just before its first reader.

The rounds in flight at a time are limited: more would end the oldest one first (group_round.py and permute_round.py in
collectives/transports/shared_memory/). ir/effects_order.py says which order of effects is kept, and why no device waits
for ever.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import permute as permute_words
from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.scheduler.program_order.memory import ComputationMemory
from distxla.scheduler.program_order.orders import Graph, Order, parameters, pull

# A round takes as long as computations that touch so many bytes, and FACTOR bytes for each of its own.
WAKING_BYTES = 1 << 17
FACTOR = 8


def pairs_of(computation: Computation) -> dict[int, int]:
    """The start of each round or transfer between devices -> its done, by their positions in the text."""
    position = {instruction.name: k for k, instruction in enumerate(computation)}
    found = {}
    for k, instruction in enumerate(computation):
        op = instruction.op
        if op.lowering is not Lowering.COMMUNICATION or not op.start_done.completes or op.stream is not None:
            continue
        begun = computation[instruction.operands[0]]
        if begun.opcode in op.start_done.completes:
            found[position[begun.name]] = k
    return found


def in_flight(instruction: Instruction) -> tuple[str, int]:
    """The kind of a round or a transfer, and how many of it may be in flight."""
    if instruction.op.effects is Effects.CHANNEL:
        return "transfers", channel_words.RING
    if instruction.op.round.has_groups:
        return "rounds of groups", group_words.ROUNDS
    return "permutes", permute_words.RING


class Overlap:
    """One run over one computation. most: rounds of a kind that may be in flight, if that is less than they allow."""

    def __init__(
        self,
        graph: Graph,
        memory: ComputationMemory,
        pairs: Mapping[int, int],
        work: Mapping[str, int],
        *,
        most: int,
    ) -> None:
        self.graph, self.memory, self.pairs, self.work, self.most = graph, memory, pairs, work, most
        self.instructions = memory.computation.instructions
        self.begins = {end: begin for begin, end in pairs.items()}
        self.placed = parameters(graph, memory)
        self.clock = 0

    def run(self, order: Sequence[int], effects: Sequence[int]) -> Order:
        """A new order made from a given one. effects: the instructions with effects, in the order of the text."""
        size = len(order)
        self._rank = [0] * size
        for position, number in enumerate(order):
            self._rank[number] = position
        self._late = [not self.memory.runs[k] or k in self.begins for k in range(size)]
        self._missing = [len(found) for found in self.graph.before]
        self._available = [0] * size  # by the clock
        self._over: dict[int, int] = {}  # by end, when its round will probably be over
        self._satisfied = [False] * size
        self._coming: list[tuple[int, int, int]] = []  # (available, rank, number)
        self._ready: list[tuple[bool, int, int]] = []  # (not urgent, rank, number)
        self._urgent: set[int] = set()
        self._blocked: list[int] = []
        self._open: dict[str, dict[int, None]] = defaultdict(dict)  # by kind the ends to come, the oldest first
        self._next_effects = [k for k in effects if k not in self.begins][::-1]
        self._look_ahead()
        for number in order:
            if not self.graph.before[number] and self._enable(number):
                self._satisfy(number)
        while (chosen := self._choose()) is not None:
            self._place(chosen)
        for number in order:
            self._pull(number)
        return list(self.placed)

    # --- which one comes next

    def _choose(self) -> int | None:
        while True:
            while self._coming and self._coming[0][0] <= self.clock:
                _, rank, number = heapq.heappop(self._coming)
                heapq.heappush(self._ready, (number not in self._urgent, rank, number))
            while self._ready:
                number = heapq.heappop(self._ready)[2]
                if number in self.placed:
                    continue
                if number in self.pairs and self._is_full(number):
                    self._blocked.append(number)
                    continue
                return number
            if self._blocked:
                number = self._blocked.pop()
                ends = (k for k in self._open[in_flight(self.instructions[number])[0]] if self._satisfied[k])
                oldest = next(ends, None)
                if oldest is None:
                    return number  # in the text, too, so many are in flight
                self.clock = max(self.clock, self._over[oldest])
                self._pull(oldest)
                heapq.heappush(self._ready, (False, self._rank[number], number))
            elif self._coming:
                self.clock = self._coming[0][0]
            else:
                return None

    def _is_full(self, number: int) -> bool:
        kind, limit = in_flight(self.instructions[number])
        return len(self._open[kind]) >= min(limit, self.most)

    def _look_ahead(self) -> None:
        """Make the predecessors of the next instruction with effects urgent, if that is a start."""
        while self._next_effects and self._next_effects[-1] in self.placed:
            self._next_effects.pop()
        if not self._next_effects or self._next_effects[-1] not in self.pairs:
            return
        pending = [self._next_effects[-1]]
        while pending:
            number = pending.pop()
            if number in self._urgent or number in self.placed:
                continue
            self._urgent.add(number)
            if self._satisfied[number] and not self._late[number]:
                heapq.heappush(self._coming, (self._available[number], self._rank[number], number))
            pending.extend(self.graph.before[number])

    # --- placing

    def _place(self, number: int) -> None:
        self._pull(number)
        self.clock += cost(self.memory, self.work, number)
        if number in self.pairs:
            end = self.pairs[number]
            kind, _ = in_flight(self.instructions[number])
            self._open[kind][end] = None
            self._over[end] = self.clock + WAKING_BYTES + FACTOR * touched(self.memory, number)
        self._satisfy(number)
        if self._next_effects and self._next_effects[-1] == number:
            self._look_ahead()

    def _pull(self, number: int) -> None:
        for k in pull(number, self.graph, self.placed):
            if k in self.begins:
                kind, _ = in_flight(self.instructions[self.begins[k]])
                self._open[kind].pop(k, None)
                while self._blocked:
                    start = self._blocked.pop()
                    heapq.heappush(self._ready, (start not in self._urgent, self._rank[start], start))

    def _satisfy(self, number: int) -> None:
        """The instruction is placed, or it is late and can be placed as soon as it is asked for."""
        pending = [number]
        while pending:
            done = pending.pop()
            for k in self.graph.after[done]:
                if self._late[done]:
                    self._available[k] = max(self._available[k], self._available[done])
                self._missing[k] -= 1
                if not self._missing[k] and self._enable(k):
                    pending.append(k)

    def _enable(self, number: int) -> bool:
        """Mark as ready; returns whether that also satisfies its users, as for those in `_late`."""
        self._satisfied[number] = True
        if not self._late[number]:
            heapq.heappush(self._coming, (self._available[number], self._rank[number], number))
            return False
        if number in self.begins:
            self._available[number] = max(self._available[number], self._over[number])
        return True


def touched(memory: ComputationMemory, number: int) -> int:
    """Bytes that an instruction reads and writes."""
    return sum(memory.size[v] for v in memory.reads[number]) + sum(memory.size[v] for v in memory.makes[number])


def cost(memory: ComputationMemory, work: Mapping[str, int], number: int) -> int:
    """The same, with the bytes that called computations touch, a loop's body once. work: theirs."""
    called = memory.computation.instructions[number].op.called_computations
    return touched(memory, number) + sum(work.get(name, 0) for name in called)
