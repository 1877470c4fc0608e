"""Who can never go on: graphs without processes."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxla.diagnosis.graph import Clauses, Deadlock, all_of, any_of, find_deadlock

NOBODY: tuple[int, ...] = ()

CASES: dict[str, tuple[dict[int, Clauses], set[int], Deadlock | None]] = {
    "nobody waits": ({}, set(), None),
    "for one that runs": ({0: all_of([1])}, set(), None),
    "a chain to one that runs": ({0: all_of([1]), 1: all_of([2])}, set(), None),
    "for one that has ended": ({0: all_of([1])}, {1}, Deadlock((0,), (), ((0, 1),), ())),
    "a chain to one that has ended": (
        {0: all_of([1]), 1: all_of([2])},
        {2},
        Deadlock((0, 1), (), ((1, 2),), (0,)),
    ),
    "each other": ({0: all_of([1]), 1: all_of([0])}, set(), Deadlock((0, 1), ((0, 1),), (), ())),
    "a ring": (
        {3: all_of([5]), 5: all_of([4]), 4: all_of([3])},
        set(),
        Deadlock((3, 4, 5), ((3, 5, 4),), (), ()),
    ),
    "itself": ({0: all_of([0])}, set(), Deadlock((0,), ((0,),), (), ())),
    "two rings and one behind": (
        {0: all_of([1]), 1: all_of([0]), 2: all_of([3]), 3: all_of([2]), 4: all_of([0, 2])},
        set(),
        Deadlock((0, 1, 2, 3, 4), ((0, 1), (2, 3)), (), (4,)),
    ),
    "all of two, one of them stuck": (
        {0: all_of([1, 2]), 1: all_of([0])},
        set(),
        Deadlock((0, 1), ((0, 1),), (), ()),
    ),
    "one of two, one of them runs": ({0: any_of([1, 2]), 1: all_of([0])}, set(), None),
    "one of two, both stuck": (
        {0: any_of([1, 2]), 1: all_of([0]), 2: all_of([0])},
        set(),
        Deadlock((0, 1, 2), ((0, 1),), (), (2,)),
    ),
    "one of two that have ended": ({0: any_of([1, 2])}, {1, 2}, Deadlock((0,), (), ((0, 1), (0, 2)), ())),
    "one of two, one has ended, the other runs": ({0: any_of([1, 2])}, {1}, None),
    "one of nobody": ({0: any_of(NOBODY)}, set(), Deadlock((0,), (), (), (0,))),
    "all of nobody": ({0: all_of(NOBODY)}, set(), None),
    "a clause of each kind": (
        {0: (*all_of([1]), *any_of([2, 3])), 2: all_of([0]), 3: all_of([0])},
        set(),
        Deadlock((0, 2, 3), ((0, 2),), (), (3,)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_deadlocks(name: str) -> None:
    waits, ended, wanted = CASES[name]
    assert find_deadlock(waits, ended) == wanted


def by_definition(waits: dict[int, Clauses], ended: set[int]) -> set[int]:
    """Let whoever can go on go on, one after another, until nobody can."""
    going = {n for clauses in waits.values() for clause in clauses for n in clause} - set(waits) - ended
    while True:
        more = {
            node
            for node, clauses in waits.items()
            if node not in going and node not in ended and all(going & set(clause) for clause in clauses)
        }
        if not more:
            return set(waits) - going - ended
        going |= more


NODES = st.integers(0, 7)
CLAUSES = st.lists(st.lists(NODES, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)


@given(st.dictionaries(NODES, CLAUSES, max_size=7), st.sets(NODES, max_size=2))
def test_random_graphs(waits: dict[int, Clauses], ended: set[int]) -> None:
    waits = {node: clauses for node, clauses in waits.items() if node not in ended}
    deadlock = find_deadlock(waits, ended)
    stuck = by_definition(waits, ended)
    assert (set(deadlock.stuck) if deadlock else set()) == stuck
    if deadlock is None:
        return
    seen: set[int] = set()
    for cycle in deadlock.cycles:
        assert cycle[0] == min(cycle)
        assert seen.isdisjoint(cycle)
        seen |= set(cycle)
        for node, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            assert any(other in clause and set(clause) <= stuck | ended for clause in waits[node])
    for node, over in deadlock.without_end:
        assert node in stuck
        assert over in ended
    assert set(deadlock.behind) == stuck - seen - {node for node, _ in deadlock.without_end}
    assert deadlock.cycles or deadlock.without_end or any(not c for clauses in waits.values() for c in clauses)


def test_large_groups_share_their_clauses() -> None:
    half = 2000
    first, second = all_of(range(half)), all_of(range(half, 2 * half))
    waits = {**dict.fromkeys(range(half), second), **dict.fromkeys(range(half, 2 * half), first)}
    begin = process_time()
    deadlock = find_deadlock(waits, ())
    assert process_time() - begin < 5
    assert deadlock is not None
    assert deadlock.cycles[0] == (0, half)
    assert len(deadlock.stuck) == 2 * half


def test_a_long_ring() -> None:
    count = 4096
    deadlock = find_deadlock({d: all_of([(d - 1) % count]) for d in range(count)}, ())
    assert deadlock is not None
    assert [len(cycle) for cycle in deadlock.cycles] == [count]
