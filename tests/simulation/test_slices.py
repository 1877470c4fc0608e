"""Calls of several processes' devices under seeds: one that fails touches no other; and mistakes that this finds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import Planted, planted
from tests.simulation.slices import draw, simulate_seed

MISTAKES = [
    Planted(
        "a call does not wait for what another set has left",
        "distxla.runtime.calls.dispatchers:Dispatchers._overlapping",
        "if not mine.isdisjoint(other.slices)",
        "if other is one",
        (),
        faults=("stop a replica",),
    ),
    Planted(
        "a failed call clears the states of all calls",
        "distxla.runtime.groups.communicators:Communicators._restart",
        "if devices is None:",
        "if True:",
        (),
    ),
    Planted(
        "a failed call ends those of all slices",
        "distxla.runtime.hosts.slice:Slice.abort",
        "abort(self.control, call=self.offset)",
        "for part in self._host.slices:\n    abort(self.control, call=part.offset)",
        (),
    ),
    Planted(
        "a slice hears of no failure of another one",
        "distxla.runtime.calls.dispatch:Dispatcher.is_aborted",
        "any(part.is_aborted for part in self.slices)",
        "self.slices[0].is_aborted",
        (),
    ),
    Planted(
        "calls are allowed on one slice only",
        "distxla.runtime.calls.dispatch:Dispatcher._take",
        "part.allow()",
        "part.allow() if part is self.slices[0] else None",
        (),
    ),
    Planted(
        "a call takes the lock of its first slice only",
        "distxla.runtime.calls.dispatchers:_Locks.__enter__",
        "for lock in self._locks:",
        "for lock in self._locks[:1]:",
        (),
    ),
]


def test_seeds_end_right_or_with_the_error_of_their_own_call() -> None:
    complaints = [simulate_seed(seed).complaint for seed in range(0, 400, 20)]
    assert not [text for text in complaints if text]


def test_seeds_differ() -> None:
    plans = [draw(seed) for seed in range(200)]
    assert len({str(plan) for plan in plans}) > 190
    assert {user.takes_over for plan in plans for user in plan.users} == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_found(mistake: Planted) -> None:
    with planted(mistake, compiles=False):
        found = next((seed for seed in range(mistake.seeds) if simulate_seed(seed, mistake.faults).complaint), None)
    assert found is not None, f"no seed of {mistake.seeds} finds it"
    print(f"found by seed {found}")
