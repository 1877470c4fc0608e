"""The wait-for graph: which device waits for which, and which can therefore never go on. Data in, data out.

A node waits until each of its clauses is met, and a clause is met as soon as one of its nodes goes on: a collective
has a clause for each missing member, an event that any of several may release has one clause for them all. A node that
does not wait is taken to go on some day, one that has ended never does. The nodes left when no other can go on are
stuck, and stay so whatever the timing: each of them has a clause whose nodes are all stuck or ended.

Members of a group mostly wait for the same missing ones. Nodes that share one tuple of clauses (the same object) share
the work on it, so a group of n costs n, not n squared.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from distxla.errors import InternalError
from distxla.lazy_dataclass import dataclass

Clauses = tuple[tuple[int, ...], ...]

MOST_STARTS = 64  # nodes of a knot from which cycles are looked for in any case
MOST_STEPS = 1_000_000  # blockers looked at, behind which no further starts are tried


@dataclass(frozen=True)
class Deadlock:
    """The nodes that can never go on, and why. All tuples in ascending order but a cycle.

    cycles: disjoint, at least one in every knot of nodes that wait for one another; in each every node waits for the
    next and the last for the first, the smallest is first.
    without_end: (node, ended node): waits for a device whose program has ended.  behind: stuck, but in neither.
    """

    stuck: tuple[int, ...]
    cycles: tuple[tuple[int, ...], ...]
    without_end: tuple[tuple[int, int], ...]
    behind: tuple[int, ...]


def all_of(nodes: Iterable[int]) -> Clauses:
    """Clauses of a node that waits for every one of these."""
    return tuple((node,) for node in nodes)


def any_of(nodes: Iterable[int]) -> Clauses:
    """Clauses of a node that waits for one of these, whichever it is."""
    return (tuple(nodes),)


def find_deadlock(waits: Mapping[int, Clauses], ended: Collection[int]) -> Deadlock | None:
    """The deadlock among nodes that wait; None where all of them may still go on.

    ended: nodes that do nothing any more.  Nodes in neither go on some day.
    """
    stuck = _stuck(waits, ended)
    if not stuck:
        return None
    blockers_of = _Blockers(waits, stuck, ended)
    without_end = tuple(
        (node, over) for node in sorted(stuck) for over in sorted(blockers_of.blockers(node)) if over not in stuck
    )
    cycles = _cycles(blockers_of)
    named = {node for cycle in cycles for node in cycle} | {node for node, _ in without_end}
    return Deadlock(tuple(sorted(stuck)), cycles, without_end, tuple(sorted(stuck - named)))


def _stuck(waits: Mapping[int, Clauses], ended: Collection[int]) -> frozenset[int]:
    """The nodes that remain when all that can go on have gone on."""
    waiters: dict[int, list[int]] = defaultdict(list)
    clauses_of: dict[int, Clauses] = {}
    for node, clauses in waits.items():
        waiters[id(clauses)].append(node)
        clauses_of[id(clauses)] = clauses
    over = frozenset(ended)
    left: dict[int, int] = {}
    met_by: dict[int, list[tuple[int, int]]] = defaultdict(list)
    going: deque[int] = deque()
    for key, clauses in clauses_of.items():
        left[key] = len(clauses)
        for number, clause in enumerate(clauses):
            if any(node not in waits and node not in over for node in clause):
                left[key] -= 1
                continue
            for node in clause:
                met_by[node].append((key, number))
        if left[key] == 0:
            going.extend(waiters[key])
    met: set[tuple[int, int]] = set()
    gone: set[int] = set()
    while going:
        node = going.popleft()
        if node in over or node in gone:
            continue
        gone.add(node)
        for key, number in met_by.get(node, ()):
            if (key, number) in met:
                continue
            met.add((key, number))
            left[key] -= 1
            if left[key] == 0:
                going.extend(waiters[key])
    return frozenset(waits) - gone - over


class _Blockers:
    """The nodes that each stuck node waits for in vain."""

    def __init__(self, waits: Mapping[int, Clauses], stuck: frozenset[int], ended: Collection[int]) -> None:
        self.stuck = stuck
        self._waits = waits
        self._dead = stuck | frozenset(ended)
        self._known: dict[int, frozenset[int]] = {}
        self._clauses = {id(waits[node]): waits[node] for node in sorted(stuck)}
        self.steps = 0  # blockers that searches have looked at

    def key(self, node: int) -> int:
        """Equal for nodes that wait for the same ones."""
        return id(self._waits[node])

    def blockers(self, node: int) -> frozenset[int]:
        """The nodes of the clauses that can't be met."""
        return self.of_key(self.key(node))

    def of_key(self, key: int) -> frozenset[int]:
        """`blockers` of all nodes with that key."""
        if key not in self._known:
            clauses = self._clauses[key]
            self._known[key] = frozenset(n for clause in clauses if self._dead.issuperset(clause) for n in clause)
        return self._known[key]


def _cycles(blockers_of: _Blockers) -> tuple[tuple[int, ...], ...]:
    """Disjoint cycles, at least one in every knot; in each knot short ones first."""
    chosen: list[tuple[int, ...]] = []
    for knot in _knots(blockers_of):
        taken: set[int] = set()
        for cycle in sorted(_cycles_in(knot, blockers_of), key=lambda cycle: (len(cycle), cycle)):
            if taken.isdisjoint(cycle):
                chosen.append(cycle)
                taken.update(cycle)
    return tuple(sorted(chosen))


def _cycles_in(knot: frozenset[int], blockers_of: _Blockers) -> Iterator[tuple[int, ...]]:
    """A shortest cycle through each of a knot's nodes, or through as many as may be tried."""
    over: set[int] = set()  # their only cycle has been found
    for number, start in enumerate(sorted(knot)):
        if number >= MOST_STARTS and blockers_of.steps > MOST_STEPS:
            return
        if start in over:
            continue
        cycle = _cycle_through(start, knot, blockers_of)
        yield cycle
        if all(len(blockers_of.blockers(node) & knot) == 1 for node in cycle):
            over.update(cycle)


def _cycle_through(start: int, knot: frozenset[int], blockers_of: _Blockers) -> tuple[int, ...]:
    """A shortest cycle through a node of a knot."""
    came_from: dict[int, int] = {start: start}
    expanded: set[int] = set()
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if blockers_of.key(node) in expanded:
            continue
        expanded.add(blockers_of.key(node))
        blockers = blockers_of.blockers(node)
        blockers_of.steps += len(blockers)
        if start in blockers:
            return smallest_first([*_path(node, came_from)][::-1])
        for other in sorted(blockers):
            if other in knot and other not in came_from:
                came_from[other] = node
                waiting.append(other)
    raise InternalError(f"no cycle leads through {start}, one of the knot {sorted(knot)}")


def _knots(blockers_of: _Blockers) -> Iterator[frozenset[int]]:
    """The largest sets of stuck nodes each of which waits, perhaps by way of others, for all of its set: Tarjan's
    strongly connected components, without single nodes that don't wait for themselves.

    Nodes that wait for the same ones share a vertex of the graph between them and those, so a group of n has 2n edges.
    """
    order: dict[tuple[bool, int], int] = {}
    lowest: dict[tuple[bool, int], int] = {}
    path: list[tuple[bool, int]] = []  # vertices whose knot is not complete
    on_path: set[tuple[bool, int]] = set()

    def next_ones(vertex: tuple[bool, int]) -> Iterator[tuple[bool, int]]:
        is_node, number = vertex
        if is_node:
            return iter([(False, blockers_of.key(number))])
        return ((True, node) for node in sorted(blockers_of.of_key(number) & blockers_of.stuck))

    for first in sorted(blockers_of.stuck):
        walk = [] if (True, first) in order else [((True, first), next_ones((True, first)))]
        while walk:
            vertex, left = walk[-1]
            if vertex not in order:
                order[vertex] = lowest[vertex] = len(order)
                path.append(vertex)
                on_path.add(vertex)
            for other in left:
                if other not in order:
                    walk.append((other, next_ones(other)))
                    break
                if other in on_path:
                    lowest[vertex] = min(lowest[vertex], order[other])
            else:
                walk.pop()
                if walk:
                    lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[vertex])
                if lowest[vertex] == order[vertex]:
                    knot = [path.pop()]
                    while knot[-1] != vertex:
                        knot.append(path.pop())
                    on_path.difference_update(knot)
                    if len(knot) > 1:  # a cycle has a vertex of both kinds
                        yield frozenset(number for is_node, number in knot if is_node)


def _path(node: int, came_from: Mapping[int, int]) -> Iterator[int]:
    """From a node back to where the search began."""
    while True:
        yield node
        if came_from[node] == node:
            return
        node = came_from[node]


def smallest_first(nodes: Iterable[int]) -> tuple[int, ...]:
    """A cycle from its smallest node on, each node once."""
    cycle = list(dict.fromkeys(nodes))
    first = cycle.index(min(cycle))
    return (*cycle[first:], *cycle[:first])


__all__ = ["Clauses", "Deadlock", "all_of", "any_of", "find_deadlock", "smallest_first"]
