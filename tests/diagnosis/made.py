"""Diagnoses of devices that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping

from distxla.diagnosis.diagnose import diagnose, summary_of
from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import CollectiveMismatchError, DeadlockError, TimeLimitError
from distxla.location import Location

ERRORS = {error.code: error for error in (CollectiveMismatchError, DeadlockError, TimeLimitError)}


def made_of(
    kind: str,
    summary: str,
    devices: Mapping[int, DeviceState],
    deadlock: Deadlock | None = None,
    pair: tuple[int, int] | None = None,
) -> Diagnosis:
    """kind: an error's code.  pair: of a mismatch."""
    error = ERRORS[kind](summary)
    if isinstance(error, CollectiveMismatchError):
        error.pair = pair
    return diagnose(error, devices, deadlock)


def made(count: int, *, events: int = 32, name: str = "all-reduce.17", quick: bool = False) -> Diagnosis:
    """Devices that wait in a ring, each behind some rounds. quick: all began to wait at the end only."""
    step = 1e-9 if quick else 0.01
    devices = {}
    for d in range(count):
        history = [
            Event(
                name, "all-reduce", k + 1, 1, k + 1, -1 - step * (events - k), -1 - step * (events - k) / 2, -1 - step
            )
            for k in range(events - 1)
        ]
        history.append(Event(name, "all-reduce", events, 1, events, 0.0 if quick else -1.0, None, -0.9))
        place = Location("step.hlo", 10 + d, 3, 4, f"{name} = ...", frame="model.py:7 in f")
        devices[d] = DeviceState(
            d,
            Doing.WAITS,
            "m",
            name,
            "all-reduce",
            place,
            round=events,
            waits_for=((d + 1) % count,),
            events=tuple(history),
        )
    verdict = Deadlock(tuple(range(count)), (tuple(range(count)),), (), ())
    return made_of("deadlock", summary_of(verdict, devices), devices, verdict)


def in_groups(count: int, over: int) -> Diagnosis:
    """All but the last devices wait in one place for these, which have ended; each began at a moment of its own."""
    waiters, ended = range(count - over), tuple(range(count - over, count))
    place = Location("step.hlo", 10, 3, 4, "all-reduce.17 = ...", frame="model.py:7 in f")
    devices = {}
    for device in range(count):
        events = [
            Event("all-reduce.17", "all-reduce", k, 1, k, -9.0 + k + device / 1000, -8.5 + k) for k in range(1, 8)
        ]
        if device in waiters:
            last = Event("all-reduce.17", "all-reduce", 8, 1, 8, -1.0 + device / 1000, None)
            devices[device] = DeviceState(
                device,
                Doing.WAITS,
                "m",
                "all-reduce.17",
                "all-reduce",
                place,
                round=8,
                group=tuple(range(count)),
                waits_for=ended,
                events=(*events, last),
            )
        else:
            devices[device] = DeviceState(device, Doing.ENDED, "m", events=tuple(events))
    pairs = tuple((device, other) for device in waiters for other in ended)
    return made_of("deadlock", "stuck", devices, Deadlock(tuple(waiters), (), pairs, ()))
