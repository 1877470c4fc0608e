"""Which device, and from when to when, a call's time depends on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from distxla.collectives.recorder import RecordedEvent
from distxla.runtime.calls.critical_path import Piece, critical_path


def event(
    device: int,
    round_: int,
    begun: float,
    ended: float | None,
    waited: float | None = None,
    resumed: float | None = None,
) -> RecordedEvent:
    """Of one group of all devices. round_: 0 for a step that computes."""
    site, step = (0, None) if round_ else (None, 0)
    return RecordedEvent(device, 0, 0, site, step, 1, round_, 0, 0, begun, ended, waited, resumed, None)


def rounds(found: RecordedEvent) -> Iterator[int]:
    if found.round:
        yield found.round


def test_of_one_device() -> None:
    assert critical_path({0: [event(0, 0, 1.0, 4.0), event(0, 0, 5.0, 9.0)]}, rounds) == (Piece(0, 1.0, 9.0),)


def test_it_goes_on_in_the_device_that_came_last() -> None:
    events = {
        0: [event(0, 0, 0.0, 2.0), event(0, 1, 2.0, 11.0, 2.0, 10.5), event(0, 0, 11.0, 30.0)],
        1: [event(1, 0, 0.0, 10.0), event(1, 1, 10.0, 10.8), event(1, 0, 11.0, 12.0)],
    }
    assert critical_path(events, rounds) == (Piece(1, 0.0, 10.0), Piece(0, 10.0, 30.0))


def test_through_several_rounds_and_devices() -> None:
    events = {
        0: [event(0, 1, 1.0, 6.0, 1.0, 6.0), event(0, 2, 20.0, 21.0)],
        1: [event(1, 1, 5.0, 6.0), event(1, 2, 7.0, 22.0, 7.0, 21.0)],
        2: [event(2, 1, 2.0, 6.0, 2.0, 6.0), event(2, 2, 8.0, 21.5, 8.0, 21.0)],
    }
    path = critical_path(events, rounds)
    assert [(piece.device, piece.begin, piece.end) for piece in path] == [
        (0, 5.0, 20.0),
        (1, 20.0, 22.0),
    ]
    assert all(one.end == other.begin for one, other in pairwise(path))


def test_a_wait_for_nobody_who_came_later_stays_on_the_device() -> None:
    events = {0: [event(0, 1, 1.0, 9.0, 3.0, 8.0)], 1: [event(1, 1, 0.0, 2.0)]}
    assert critical_path(events, rounds) == (Piece(0, 1.0, 9.0),)


def test_an_event_that_has_not_ended_counts_from_its_begin() -> None:
    events = {0: [event(0, 0, 1.0, 4.0), event(0, 1, 4.0, None, 4.0)], 1: [event(1, 0, 1.0, 3.0)]}
    assert critical_path(events, rounds) == (Piece(0, 1.0, 4.0),)


def test_nothing_was_recorded() -> None:
    assert critical_path({}, rounds) == critical_path({0: []}, rounds) == ()


def test_clocks_that_differ_do_no_harm() -> None:
    """The one that came last seems to have come after the wait was over."""
    events = {0: [event(0, 1, 1.0, 6.0, 1.0, 4.0)], 1: [event(1, 1, 5.0, 5.5)]}
    assert critical_path(events, rounds) == (Piece(0, 5.0, 6.0),)
