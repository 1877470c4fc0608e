"""Orders of a computation that need little memory: a few simple ones, from which `computation_order.py` takes the best.

Instructions are numbers: their positions in the text. Instructions that run no code (parameters, constants, tuples,
views) need no memory either and are placed before their first reader.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

from distxla.ir.instruction import Instruction
from distxla.scheduler.program_order.memory import ComputationMemory

Order = list[int]


class Graph:
    """The order between instructions: operands, control predecessors and further (earlier, later) pairs of names."""

    def __init__(self, instructions: Sequence[Instruction], edges: Iterable[tuple[str, str]] = ()) -> None:
        number = {instruction.name: k for k, instruction in enumerate(instructions)}
        before = [dict.fromkeys(number[n] for n in (*i.operands, *i.control_predecessors)) for i in instructions]
        for earlier, later in edges:
            before[number[later]][number[earlier]] = None
        self.before = [tuple(found) for found in before]
        self.after: list[list[int]] = [[] for _ in instructions]
        for k, found in enumerate(before):
            for j in found:
                self.after[j].append(k)

    def __len__(self) -> int:
        return len(self.before)

    def in_text_order(self) -> Order:
        """The order that moves as little as possible. ValueError where the edges form a cycle."""
        order = _listed(self.before, self.after, lambda number: (0, number))
        if len(order) != len(self):
            raise ValueError(f"instruction {min(set(range(len(self))) - set(order))} waits for itself")
        return order


def candidates(graph: Graph, memory: ComputationMemory) -> Iterator[Order]:
    """Some orders with low peaks; which one has the lowest differs from program to program."""
    for order in (_forwards(graph, memory), _backwards(graph, memory), _depth_first(graph, memory)):
        yield aliases_late(order, graph, memory)


def aliases_late(order: Iterable[int], graph: Graph, memory: ComputationMemory) -> Order:
    """The order with instructions that run no code in front of their first reader, parameters at the top."""
    found = parameters(graph, memory)
    for number in order:
        if memory.runs[number]:
            pull(number, graph, found)
    for number in range(len(graph)):
        pull(number, graph, found)
    return list(found)


def parameters(graph: Graph, memory: ComputationMemory) -> dict[int, None]:
    """The beginning of an order: the parameters, in their places in the text."""
    return {k: None for k, i in enumerate(memory.computation) if i.op.role.is_parameter and not graph.before[k]}


def pull(number: int, graph: Graph, found: dict[int, None]) -> list[int]:
    """Add an instruction to `found`, and before it all its predecessors that are missing; the added ones."""
    added: list[int] = []
    pending = [number]
    while pending:
        top = pending[-1]
        missing = [k for k in graph.before[top] if k not in found] if top not in found else []
        if missing:
            pending.extend(sorted(missing, reverse=True))
            continue
        pending.pop()
        if top not in found:
            found[top] = None
            added.append(top)
    return added


def _listed(
    before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], key: Callable[[int], tuple[int, int]]
) -> Order:
    """List scheduling: of those whose predecessors are placed the one with the least key."""
    waiting = [len(found) for found in before]
    ready = [key(k) for k, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)[1]
        order.append(number)
        for k in after[number]:
            waiting[k] -= 1
            if not waiting[k]:
                heapq.heappush(ready, key(k))
    return order


def _sizes(memory: ComputationMemory) -> list[int]:
    """By value, the bytes that the order decides about: not those of parameters, constants and results."""
    results = memory.results
    return [size if v in memory.maker and v not in results else 0 for v, size in enumerate(memory.size)]


def _readers(memory: ComputationMemory) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in memory.size]
    for number, values in enumerate(memory.reads):
        for value in values:
            readers[value].append(number)
    return readers


class _Greedy:
    """List scheduling by a cost in bytes that falls while others are placed, least first, then by the text.

    Entries of the heap are not updated: an instruction whose cost has fallen is pushed once more.
    """

    def __init__(self, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], sign: int) -> None:
        self._after = after
        self._sign = sign  # whether earlier or later in the text comes first among equals
        self._waiting = [len(found) for found in before]
        self._ready: list[tuple[int, int]] = []
        self._placed = [False] * len(before)

    def run(self, cost: Callable[[int], int], placed: Callable[[int], Iterable[int]]) -> Order:
        """cost: of an instruction now.  placed: called with each one; gives those whose cost has fallen."""
        order: Order = []
        for k, count in enumerate(self._waiting):
            if not count:
                self._push(k, cost)
        while self._ready:
            number = self._sign * heapq.heappop(self._ready)[1]
            if self._placed[number]:
                continue
            self._placed[number] = True
            order.append(number)
            cheaper = list(placed(number))
            for k in self._after[number]:
                self._waiting[k] -= 1
                if not self._waiting[k]:
                    self._push(k, cost)
            for k in cheaper:
                if not self._waiting[k] and not self._placed[k]:
                    self._push(k, cost)
        return order

    def _push(self, number: int, cost: Callable[[int], int]) -> None:
        heapq.heappush(self._ready, (cost(number), self._sign * number))


# An instruction that runs no code is placed as soon as it can be.
_AT_ONCE = -(1 << 62)


def _forwards(graph: Graph, memory: ComputationMemory) -> Order:
    """From the beginning: first the instruction that frees most beyond the bytes it takes."""
    size, readers = _sizes(memory), _readers(memory)
    left = [len(found) for found in readers]
    placed_ones: set[int] = set()

    def cost(number: int) -> int:
        if not memory.runs[number]:
            return _AT_ONCE
        freed = sum(size[v] for v in memory.reads[number] if left[v] == 1)
        return sum(size[v] for v in memory.makes[number]) - freed

    def placed(number: int) -> Iterator[int]:
        placed_ones.add(number)
        for value in memory.reads[number]:
            left[value] -= 1
            if left[value] == 1:
                yield next(k for k in readers[value] if k not in placed_ones)

    return _Greedy(graph.before, graph.after, 1).run(cost, placed)


def _backwards(graph: Graph, memory: ComputationMemory) -> Order:
    """From the end: first the instruction that needs, before it, fewest bytes beyond those it makes."""
    size, readers = _sizes(memory), _readers(memory)
    live: set[int] = set()

    def cost(number: int) -> int:
        if not memory.runs[number]:
            return _AT_ONCE
        needed = sum(size[v] for v in memory.reads[number] if v not in live)
        return needed - sum(size[v] for v in memory.makes[number])

    def placed(number: int) -> Iterator[int]:
        for value in memory.reads[number]:
            if value not in live:
                live.add(value)
                yield from readers[value]

    return _Greedy(graph.after, graph.before, -1).run(cost, placed)[::-1]


def _depth_first(graph: Graph, memory: ComputationMemory) -> Order:
    """Each instruction right behind its operands; of these first the one that needs much and leaves little."""
    size = _sizes(memory)
    held = [sum(size[v] for v in memory.made_of(number)) for number in range(len(graph))]
    need = [0] * len(graph)
    visits: list[list[int]] = [[] for _ in range(len(graph))]
    for number in graph.in_text_order():
        visits[number] = sorted(graph.before[number], key=lambda k: (held[k] - need[k], k))
        kept = 0
        for k in visits[number]:
            need[number] = max(need[number], kept + need[k])
            kept += held[k]
        need[number] = max(need[number], kept + held[number])
    found: dict[int, None] = {}
    for sink in (k for k in range(len(graph)) if not graph.after[k]):
        pending = [(sink, iter(visits[sink]))]
        while pending:
            number, rest = pending[-1]
            missing = next((k for k in rest if k not in found), None)
            if missing is not None:
                pending.append((missing, iter(visits[missing])))
            else:
                found[number] = None
                pending.pop()
    return list(found)
