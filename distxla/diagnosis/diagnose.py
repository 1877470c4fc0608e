"""From the devices' states at the end to a diagnosis: its kind, why, where histories diverge, what to change.

`check`, the reference and the cluster all ask here for the kind of a failure (docs/deadlock.md), and report it in the
same sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from distxla.diagnosis.divergence import divergences, point_of_divergence
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.diagnosis.facts.findings import UNMATCHED
from distxla.diagnosis.graph import Deadlock
from distxla.diagnosis.hints import Hints
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import CollectiveMismatchError, DeadlockError, DistxlaError
from distxla.ir.module import Module
from distxla.wording import named

NO_DEADLOCK = Deadlock((), (), (), ())


def diagnose(
    error: DistxlaError,
    devices: Mapping[int, DeviceState],
    deadlock: Deadlock | None = None,
    modules: Mapping[int, Module] | None = None,
    *,
    is_live: bool = True,
    logical: Mapping[int, int] | None = None,
) -> Diagnosis:
    """error: gives kind, summary and place.  deadlock: on flattened device ids, of devices that wait.  modules: by
    device, where they are known.  is_live: of a run.  logical: the id that a device has in its program,
    by device, where that is another one."""
    deadlock, modules = deadlock or NO_DEADLOCK, modules or {}
    pair = error.pair if isinstance(error, CollectiveMismatchError) else None
    diverging = divergences(deadlock, devices, pair)
    both = pair or min(deadlock.cycles, key=len, default=())[:2] or next(iter(deadlock.without_end), None)
    return Diagnosis(
        error.code,
        error.message,
        tuple(device for _, device in sorted(devices.items())),
        error.location,
        error.channel if isinstance(error, DeadlockError) else None,
        deadlock.cycles,
        deadlock.without_end,
        deadlock.behind,
        pair,
        diverging,
        None if both is None else point_of_divergence(both, devices, modules, diverging),
        Hints(devices, modules, logical or {}).of(deadlock, pair, diverging),
        is_live,
    )


def refused(error: DeadlockError) -> Diagnosis:
    """Of a run that is refused, since a program waits for a transfer that no program makes, or since programs
    contradict each other: no device has been followed."""
    kind = error.code if isinstance(error, CollectiveMismatchError) else UNMATCHED
    hints = Hints({}, {}).of_unmatched(error)
    return Diagnosis(kind, error.message, location=error.location, channel=error.channel, hints=hints, is_live=False)


def deadlock_error(
    deadlock: Deadlock, devices: Mapping[int, DeviceState], differing: Callable[[int, int], str]
) -> DeadlockError:
    """The error of devices that can never go on, without a diagnosis.

    A mismatch where the shortest cycle is of two devices, each in a round of a collective that the other one never
    reaches, and the two instructions differ: they contradict each other.  differing: signature.differences of the
    instructions in which two devices wait.
    """
    text = summary_of(deadlock, devices)
    cycle = min(deadlock.cycles, key=len, default=())
    first = devices.get(cycle[0] if cycle else deadlock.without_end[0][0])
    location = None if first is None else first.location
    error = DeadlockError(text, location)
    if len(cycle) == 2 and all(device in devices and devices[device].group for device in cycle):
        found = differing(*cycle)
        if found:
            error = CollectiveMismatchError(f"{text}; they differ in {found}", location)
    error.channel = None if first is None else first.channel
    return error


def summary_of(deadlock: Deadlock, devices: Mapping[int, DeviceState]) -> str:
    """In a sentence why no device can go on: the first device without end, else the first cycle."""
    if deadlock.without_end and not deadlock.cycles:
        waiter, over = deadlock.without_end[0]
        return f"device {waiter} waits in {_place(devices, waiter)} for device {over}, {_why_over(devices, over)}"
    if not deadlock.cycles:
        return f"{named(deadlock.stuck)} can never go on"
    cycle = min(deadlock.cycles, key=len)
    if len(cycle) == 1:
        return f"device {cycle[0]} waits in {_place(devices, cycle[0])} for itself"
    if len(cycle) > 4:
        places = dict.fromkeys(_place(devices, device) for device in cycle)
        where = (
            next(iter(places))
            if len(places) == 1
            else f"{next(iter(places))} and {len(places) - 1} more place{'s' * (len(places) > 2)}"
        )
        chain = " -> ".join(map(str, (*cycle[:3], "...", cycle[-1], cycle[0])))
        return f"{len(cycle)} devices wait for one another in {where}: {chain}; none can go on"
    text = f"device {cycle[0]} waits in {_place(devices, cycle[0])} for device {cycle[1]}"
    for device, other in zip(cycle[1:], (*cycle[2:], cycle[0]), strict=True):
        text += f", which waits in {_place(devices, device)} for device {other}"
    return f"{text}: {'neither' if len(cycle) == 2 else 'none'} can go on"


def _place(devices: Mapping[int, DeviceState], device: int) -> str:
    return str(devices[device].place) if device in devices else "an unknown place"


def _why_over(devices: Mapping[int, DeviceState], device: int) -> str:
    doing = devices[device].doing if device in devices else Doing.ABSENT
    reasons = {
        Doing.ENDED: "whose program has ended",
        Doing.FAILED: "whose program has failed",
        Doing.LOST: "which died",
    }
    return reasons.get(doing, "which runs nothing in this call")


__all__ = ["deadlock_error", "diagnose", "refused", "summary_of"]
