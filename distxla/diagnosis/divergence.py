"""Where the histories of two devices diverge: the last event that both have, and the next event of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from distxla.diagnosis.communicating import Enclosing, enclosing, found
from distxla.diagnosis.facts.blocked import DeviceState, Event, Place
from distxla.diagnosis.facts.findings import Divergence
from distxla.diagnosis.graph import Deadlock
from distxla.ir.module import Module

KEPT_DIVERGENCES = 64


def divergences(
    deadlock: Deadlock, devices: Mapping[int, DeviceState], pair: tuple[int, int] | None
) -> tuple[Divergence, ...]:
    """Of neighbours in cycles, and of devices that wait for an ended one; and of a pair that does not belong together.

    Devices with the same history are reported together.
    """
    pairs = [] if pair is None else [pair]
    for cycle in deadlock.cycles:
        pairs += zip(cycle, (*cycle[1:], cycle[0]), strict=True)
    numbers: dict[tuple[object, ...], int] = {}
    histories: dict[int, int] = {}  # by device a number, equal for equal ones
    grouped: dict[tuple[int, int], tuple[dict[int, None], dict[int, None]]] = {}
    for one, other in (*pairs, *deadlock.without_end):
        if one not in devices or other not in devices:
            continue
        for device in (one, other):
            if device not in histories:
                histories[device] = numbers.setdefault(_history(devices[device]), len(numbers))
        mine, theirs = histories[one], histories[other]
        if (theirs, mine) in grouped:
            one, other, mine, theirs = other, one, theirs, mine
        ones, others = grouped.setdefault((mine, theirs), ({}, {}))
        ones[one] = others[other] = None
    found: list[Divergence] = []
    for ones, others in grouped.values():
        (one, *also), (other, *other_also) = ones, others
        first = divergence(devices[one], devices[other])
        if len(found) == KEPT_DIVERGENCES:
            break
        if first is not None:
            found.append(replace(first, also=tuple(also), other_also=tuple(other_also)))
    return tuple(found)


def _history(device: DeviceState) -> tuple[object, ...]:
    """Equal for devices whose histories are, as far as `divergence` looks at them."""
    return (device.program, _file(device), *((*_key(event), event.iteration) for event in device.events))


def divergence(one: DeviceState, other: DeviceState) -> Divergence | None:
    """Where the histories of two devices first differ.

    None if they are equal, if one is empty, or if they are of different programs and have no event in common.
    """
    mine, theirs = ([*map(_key, device.events)] for device in (one, other))
    if not mine or not theirs:
        return None
    i, j = _aligned(mine, theirs)
    if i < 0:
        if one.program != other.program or _file(one) != _file(other):
            return None  # other names
        i = j = 0
    ahead: dict[str, int] = {}  # by how many iterations, by instruction: loops need not begin with the same one
    iteration = ""
    while i < len(mine) and j < len(theirs) and mine[i] == theirs[j]:
        event, their = one.events[i], other.events[j]
        if ahead.setdefault(event.instruction, event.iteration - their.iteration) != event.iteration - their.iteration:
            iteration = " in iteration {}"
            break
        i, j = i + 1, j + 1
    if i == len(mine) and j == len(theirs):
        return None
    common = str(one.events[i - 1]) if i else ""
    return Divergence(
        one.device,
        other.device,
        common,
        f"{one.events[i]}{iteration.format(one.events[i].iteration)}" if i < len(mine) else "",
        f"{other.events[j]}{iteration.format(other.events[j].iteration)}" if j < len(theirs) else "",
        i if i < len(mine) else -1,
        j if j < len(theirs) else -1,
    )


def _file(device: DeviceState) -> str | None:
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


# --- the branch or the loop


def point_of_divergence(
    both: tuple[int, ...],
    devices: Mapping[int, DeviceState],
    modules: Mapping[int, Module],
    diverging: Sequence[Divergence],
) -> Place | None:
    """The conditional or loop that takes two devices of one program different ways; None where none does, or nothing
    tells."""
    one, other = both[0], both[-1]
    module = modules.get(one)
    if one == other or module is None or modules.get(other) is not module or not {one, other} <= devices.keys():
        return None
    known = next((d for d in diverging if _is_of(d, one, other)), None)
    if known is None:
        ends = [_around_state(module, devices[device]) for device in (one, other)]
        if ends[0] is not None and ends[0] == ends[1]:
            return _other_iteration(ends[0], devices[one], devices[other])
        before: tuple[Enclosing, ...] = ()
        is_same_place = False
    else:
        states = devices[known.device], devices[known.other_device]
        numbers = known.one_event, known.other_event
        ends = [_around_event(module, *end) for end in zip(states, numbers, strict=True)]
        before = _last_common(module, states, numbers)
        is_same_place = known.one_event >= 0 and known.other_event >= 0 and " in iteration " in known.one
    by = _first_difference(ends[0], ends[1], before, is_same_place=is_same_place)
    return None if by is None else by.by.place


def _other_iteration(around: tuple[Enclosing, ...], one: DeviceState, other: DeviceState) -> Place | None:
    """The outermost loop around both devices of which they are in different iterations."""
    iterations = [{loop.instruction: loop.iteration for loop in device.loops} for device in (one, other)]
    for by in around:
        mine, theirs = (known.get(by.by.instruction.name) for known in iterations)
        if by.is_loop and mine is not None and theirs is not None and mine != theirs:
            return by.by.place
    return None


def _is_of(known: Divergence, one: int, other: int) -> bool:
    mine, theirs = (known.device, *known.also), (known.other_device, *known.other_also)
    return (one in mine and other in theirs) or (other in mine and one in theirs)


_Around = tuple[Enclosing, ...] | None  # the loops and conditionals around a place; None for no place


def _around(module: Module, instruction: str, computation: str) -> _Around:
    located = found(module, instruction, computation)
    return None if located is None else enclosing(module, located.computation.name)


def _around_state(module: Module, device: DeviceState) -> _Around:
    return _around(module, device.instruction, device.computation) if device.waits_for or device.group else None


def _around_event(module: Module, device: DeviceState, number: int) -> _Around:
    if number < 0:
        return None
    event = device.events[number]
    return _around(module, event.instruction, event.computation)


def _last_common(
    module: Module, states: tuple[DeviceState, DeviceState], numbers: tuple[int, int]
) -> tuple[Enclosing, ...]:
    """The loops and branches around the last event that both have."""
    state, number = next((end for end in zip(states, numbers, strict=True) if end[1] > 0), (states[0], 0))
    return (_around_event(module, state, number - 1) or ()) if number > 0 else ()


def _first_difference(
    one: _Around, other: _Around, before: tuple[Enclosing, ...], *, is_same_place: bool
) -> Enclosing | None:
    if one is None or other is None:
        there = one or other or ()
        new = next((by for by in there if not any(by.is_same(known) for known in before)), None)
        return new or next((by for by in reversed(there) if by.is_loop), None) or next(iter(there), None)
    for mine, theirs in zip(one, other, strict=False):
        if not mine.is_same(theirs) or mine.computation != theirs.computation:
            return mine
    longer = max(one, other, key=len)
    if len(one) != len(other):
        return longer[min(len(one), len(other))]
    return next((by for by in reversed(one) if by.is_loop), None) if is_same_place else None


__all__ = ["divergence", "divergences", "point_of_divergence"]
