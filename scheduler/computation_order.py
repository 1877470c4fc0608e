"""The order in which a device executes a computation's instructions.

A module that says `is_scheduled=true` keeps the order of its text, with inserted instructions where passes put them.

Otherwise the order is chosen in two steps, computation by computation, called ones first:

1. The least memory. Of the text's order and a few others (program_order/orders.py) the one with the lowest peak
   (program_order/memory.py) is taken; another one than the text's only where that saves a share SAVED, since the text's
   has the better locality and is the one that the reader knows.
2. The most overlap. Where the computation has asynchronous pairs, they are moved apart (program_order/overlap.py), with
   as many rounds in flight as memory allows: the peak may grow by a share PAID, or by PAID_BYTES. Where even one round
   would cost more, the order stays.

Both keep all edges: operands, control predecessors, and the order of effects, which ir/effects_order.py explains:
instructions that begin a round or a transfer, and those that others wait for, stay in the order of the text. So devices
meet as they would in that order, if they run one module, or modules whose order was decided together. Only the ends of
rounds and of sends move, behind others: no device waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from distxla.errors import InternalError
from distxla.ir.computation import Computation
from distxla.ir.effects_order import effectful_computations, effects_order, has_effects
from distxla.ir.module import Module
from distxla.ir.order import stable_order
from distxla.lazy_dataclass import dataclass, field
from distxla.scheduler.program_order.memory import ComputationMemory, ModuleMemory
from distxla.scheduler.program_order.orders import Graph, Order, candidates
from distxla.scheduler.program_order.overlap import Overlap, cost, pairs_of

# Peaks below are no reason to move anything.
SMALL_BYTES = 4096
SAVED = 1 / 16
PAID = 1 / 2
PAID_BYTES = 1 << 20
MOST_IN_FLIGHT = (8, 4, 2, 1)


def schedule(module: Module, *, max_bytes: int = PAID_BYTES) -> Module:
    """The module with every computation's instructions in execution order, and is_scheduled set.

    max_bytes: by which the peak may grow for more overlap, where PAID of it is less.
    Raises InternalError where the edges form a cycle (the verifier rejects such modules).
    """
    scheduler = _Scheduler(module, max_bytes)
    return module.replace(computations=tuple(map(scheduler.scheduled, module.computations)), is_scheduled=True)


def overlapped(module: Module, *, max_bytes: int = PAID_BYTES) -> Module:
    """The module with asynchronous pairs moved apart, so that passes which join instructions leave something between.

    A scheduled module is returned as it is.  max_bytes: as for `schedule`.
    """
    if module.is_scheduled or not any(pairs_of(computation) for computation in module.computations):
        return module
    scheduler = _Scheduler(module, max_bytes)
    return module.replace(computations=tuple(map(scheduler.drawn_apart, module.computations)))


@dataclass
class _Scheduler:
    """One run over one module. work: by computation, the bytes that it touches."""

    module: Module
    max_bytes: int
    effectful: frozenset[str] = field(init=False)
    memory: ModuleMemory = field(init=False)
    work: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.effectful = effectful_computations(self.module)
        self.memory = ModuleMemory(self.module)

    def scheduled(self, computation: Computation) -> Computation:
        if self.module.is_scheduled or computation.name not in self.memory.roles:
            return self._as_it_stands(computation)
        graph, memory = self._graph(computation), self.memory.of(computation)
        order = self._with_overlap(graph, memory, with_least_memory(graph, memory))
        return self._settled(memory, order)

    def drawn_apart(self, computation: Computation) -> Computation:
        if computation.name not in self.memory.roles:
            return computation
        graph, memory = self._graph(computation), self.memory.of(computation)
        return self._settled(memory, self._with_overlap(graph, memory, graph.in_text_order()))

    def _settled(self, memory: ComputationMemory, order: Order) -> Computation:
        computation = memory.computation
        self.memory.settle(memory, order)
        self.work[computation.name] = sum(cost(memory, self.work, number) for number in order)
        if order == list(range(len(order))):
            return computation
        ordered = tuple(computation.instructions[number] for number in order)
        return Computation(computation.name, ordered, computation.root, computation.execution_thread, computation.span)

    def _as_it_stands(self, computation: Computation) -> Computation:
        edges = effects_order(computation, self.effectful, strict=True)
        try:
            ordered = stable_order(computation.instructions, edges)
        except ValueError as error:
            raise InternalError(f"no order of {computation.name}: {error}") from None
        if all(a is b for a, b in zip(ordered, computation.instructions, strict=True)):
            return computation
        return Computation(computation.name, ordered, computation.root, computation.execution_thread, computation.span)

    def _graph(self, computation: Computation) -> Graph:
        return Graph(computation.instructions, effects_order(computation, self.effectful, strict=False))

    def _with_overlap(self, graph: Graph, memory: ComputationMemory, order: Order) -> Order:
        pairs = pairs_of(memory.computation)
        if not pairs:
            return order
        effects = [k for k, i in enumerate(memory.computation) if has_effects(i, self.effectful)]
        return with_overlap(graph, memory, order, pairs, effects, self.work, self.max_bytes)


def with_least_memory(graph: Graph, memory: ComputationMemory) -> Order:
    """The text's order, or another one that needs clearly less. InternalError where the edges form a cycle."""
    try:
        order = graph.in_text_order()
    except ValueError as error:
        raise InternalError(f"no order of {memory.computation.name}: {error}") from None
    peak = memory.peak(order)
    best = peak - max(SMALL_BYTES, int(peak * SAVED))
    for other in candidates(graph, memory) if peak > SMALL_BYTES else ():
        if (needed := memory.peak(other)) < best:
            order, best = other, needed
    return order


def with_overlap(
    graph: Graph,
    memory: ComputationMemory,
    order: Order,
    pairs: Mapping[int, int],
    effects: Order,
    work: Mapping[str, int],
    max_bytes: int,
) -> Order:
    """The order with pairs moved apart as far as its memory allows."""
    peak = memory.peak(order)
    allowed = peak + max(max_bytes, int(peak * PAID))
    for most in MOST_IN_FLIGHT:
        found = Overlap(graph, memory, pairs, work, most=most).run(order, effects)
        if memory.peak(found) <= allowed:
            return found
    return order
