"""From what devices do at the end of a run to a report of it: why, how their histories differ, what to change.

`check`, the reference and the cluster all ask here what kind of failure it is (docs/deadlock.md), and say it in the
same sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from distxla.collectives.hints import hints
from distxla.collectives.report import DeviceReport, Difference, Doing, Event, Report, named
from distxla.collectives.wait_graph import Verdict
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.ir.module import Module

MOST_DIFFERENCES = 64  # that are kept
NO_VERDICT = Verdict((), (), (), ())


def report(
    kind: str,
    summary: str,
    devices: Mapping[int, DeviceReport],
    verdict: Verdict | None = None,
    modules: Mapping[int, Module] | None = None,
    pair: tuple[int, int] | None = None,
) -> Report:
    """kind and summary: the error's code and message.  verdict: on flattened device ids.  modules: by device, where
    they are known.  pair: two devices that came to one round, or one transfer, with what does not belong together."""
    verdict = verdict or NO_VERDICT
    differences = _differences(verdict, devices, pair)
    return Report(
        kind,
        summary,
        tuple(device for _, device in sorted(devices.items())),
        verdict.cycles,
        verdict.without_end,
        verdict.behind,
        differences,
        hints(verdict, devices, modules or {}, pair, differences),
    )


def round_called(number: int, members: Iterable[int]) -> str:
    """number: from 1."""
    return f"round {number} of {named(members)}"


def transfer_called(number: int, source: int, target: int, channel: int) -> str:
    """number: from 1."""
    return f"transfer {number} from device {source} to device {target} on channel {channel}"


def mismatch_of(what: str, one: tuple[int, str], other: tuple[int, str], differing: str) -> str:
    """In a sentence that two devices came to `what`, a round or a transfer, with what does not belong together.

    one, other: device and the place of its instruction.  differing: signature.differences of them, in this order.
    """
    text = f"{what}: device {one[0]} comes with {one[1]}, device {other[0]} with {other[1]}"
    return text + (f"; they differ in {differing}" if differing else "")


def stuck_error(
    verdict: Verdict, devices: Mapping[int, DeviceReport], differing: Callable[[int, int], str]
) -> DeadlockError:
    """The error of devices that can never go on, without a report.

    A mismatch where the shortest cycle is of two devices, each in a round of a collective that the other one does not
    come to, and the two instructions differ: they contradict each other.  differing: signature.differences of what two
    devices wait in.
    """
    text = summary_of(verdict, devices)
    cycle = min(verdict.cycles, key=len, default=())
    first = cycle[0] if cycle else verdict.without_end[0][0]
    location = devices[first].location if first in devices else None
    if len(cycle) == 2 and all(device in devices and devices[device].group for device in cycle):
        found = differing(*cycle)
        if found:
            return CollectiveMismatchError(f"{text}; they differ in {found}", location)
    return DeadlockError(text, location)


def summary_of(verdict: Verdict, devices: Mapping[int, DeviceReport]) -> str:
    """In a sentence why nobody can go on: the first device without end, else the first cycle."""
    if verdict.without_end and not verdict.cycles:
        waiter, over = verdict.without_end[0]
        return f"device {waiter} waits in {_place(devices, waiter)} for device {over}, {_why_over(devices, over)}"
    if not verdict.cycles:
        return f"{named(verdict.stuck)} can never go on"
    cycle = min(verdict.cycles, key=len)
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


def _place(devices: Mapping[int, DeviceReport], device: int) -> str:
    return devices[device].place if device in devices else "an unknown place"


def _why_over(devices: Mapping[int, DeviceReport], device: int) -> str:
    doing = devices[device].doing if device in devices else Doing.ABSENT
    reasons = {
        Doing.ENDED: "whose program has ended",
        Doing.FAILED: "whose program has failed",
        Doing.LOST: "which died",
    }
    return reasons.get(doing, "which runs nothing in this call")


def _differences(
    verdict: Verdict, devices: Mapping[int, DeviceReport], pair: tuple[int, int] | None
) -> tuple[Difference, ...]:
    """Of neighbours in cycles, and of who waits for one that has ended; and of a pair that does not belong together.

    Devices with the same history are told of together.
    """
    pairs = [] if pair is None else [pair]
    for cycle in verdict.cycles:
        pairs += zip(cycle, (*cycle[1:], cycle[0]), strict=True)
    numbers: dict[tuple[object, ...], int] = {}
    histories: dict[int, int] = {}  # by device a number, equal for equal ones
    alike: dict[tuple[int, int], tuple[dict[int, None], dict[int, None]]] = {}
    for one, other in (*pairs, *verdict.without_end):
        if one not in devices or other not in devices:
            continue
        for device in (one, other):
            if device not in histories:
                histories[device] = numbers.setdefault(_history(devices[device]), len(numbers))
        mine, theirs = histories[one], histories[other]
        if (theirs, mine) in alike:
            one, other, mine, theirs = other, one, theirs, mine
        ones, others = alike.setdefault((mine, theirs), ({}, {}))
        ones[one] = others[other] = None
    found: list[Difference] = []
    for ones, others in alike.values():
        (one, *also), (other, *other_also) = ones, others
        parted = difference(devices[one], devices[other])
        if len(found) == MOST_DIFFERENCES:
            break
        if parted is not None:
            found.append(replace(parted, also=tuple(also), other_also=tuple(other_also)))
    return tuple(found)


def _history(device: DeviceReport) -> tuple[object, ...]:
    """Equal for devices whose histories are, as far as `difference` looks at them."""
    return (device.program, _file(device), *((*_key(event), event.iteration) for event in device.events))


def difference(one: DeviceReport, other: DeviceReport) -> Difference | None:
    """Where the histories of two devices part; None where they have nothing in common to begin with, or are equal."""
    mine, theirs = ([*map(_key, device.events)] for device in (one, other))
    if not mine or not theirs:
        return None
    i, j = _aligned(mine, theirs)
    if i < 0:
        if one.program != other.program or _file(one) != _file(other):
            return None  # other names
        i = j = 0
    ahead: dict[str, int] = {}  # by how many iterations, by instruction: loops need not begin with the same one
    turns = ""
    while i < len(mine) and j < len(theirs) and mine[i] == theirs[j]:
        event, their = one.events[i], other.events[j]
        if ahead.setdefault(event.instruction, event.iteration - their.iteration) != event.iteration - their.iteration:
            turns = " in iteration {}"
            break
        i, j = i + 1, j + 1
    if i == len(mine) and j == len(theirs):
        return None
    common = str(one.events[i - 1]) if i else ""
    return Difference(
        one.device,
        other.device,
        common,
        f"{one.events[i]}{turns.format(one.events[i].iteration)}" if i < len(mine) else "",
        f"{other.events[j]}{turns.format(other.events[j].iteration)}" if j < len(theirs) else "",
        i if i < len(mine) else -1,
        j if j < len(theirs) else -1,
    )


def _file(device: DeviceReport) -> str | None:
    return device.location.file if device.location is not None else None


_Key = tuple[str, str, int]


def _key(event: Event) -> _Key:
    """Runs are no part of it: devices that ran other programs before have other numbers for the same run."""
    return event.instruction, event.opcode, event.round


def _aligned(mine: Sequence[_Key], theirs: Sequence[_Key]) -> tuple[int, int]:
    """Places of the first event that both have; (-1, -1) if there is none, (0, 0) where both begin with the first."""
    places = {key: j for j, key in reversed([*enumerate(theirs)])}
    for i, key in enumerate(mine):
        if key in places:
            return i, places[key]
    return -1, -1


__all__ = [
    "difference",
    "mismatch_of",
    "named",
    "report",
    "round_called",
    "stuck_error",
    "summary_of",
    "transfer_called",
]
