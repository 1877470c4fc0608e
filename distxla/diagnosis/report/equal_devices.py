"""Devices that do the same, which a page shows as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.diagnosis.facts.findings import Findings
from distxla.lazy_dataclass import dataclass
from distxla.wording import listed, named

FEW = 12  # devices, or groups of them, that are shown one by one


@dataclass(frozen=True)
class EqualDevices:
    """Devices that do the same. state: of the first of them.  waits_for: numbers of the groups that at least one of
    them waits for, this one's own included.  waits_on: the devices that at least one waits for.  kind: cycle, behind,
    over or free."""

    devices: tuple[int, ...]
    state: DeviceState
    waits_for: tuple[int, ...]
    waits_on: tuple[int, ...]
    kind: str

    @property
    def waits_text(self) -> str:
        """`240-255`; `some of 0-255` where not all of them wait for the same devices; "" for none."""
        is_same = {*self.state.waits_for} == {*self.waits_on}
        return f"{'' if is_same else 'some of '}{listed(self.waits_on)}"

    @property
    def who(self) -> str:
        return named(self.devices)


def grouped(diagnosis: Findings) -> tuple[EqualDevices, ...]:
    """All devices, and those that they wait for, those of cycles first.

    Devices are together that are in the same place and wait for the same devices. If these are more than a few groups,
    devices that wait for devices of the same groups are together; if those are, too, all that are in the same place.
    """
    states = {device.device: device for device in diagnosis.devices}
    for device in diagnosis.devices:
        for other in device.waits_for:
            states.setdefault(other, DeviceState(other, Doing.ABSENT))
    numbers = _numbered({device: (_place(state), state.waits_for) for device, state in states.items()})
    if len(set(numbers.values())) > FEW:
        rough = _numbered({device: _place(state) for device, state in states.items()})
        fine = _refined(rough, states)
        numbers = fine if len(set(fine.values())) <= FEW else rough
    members: dict[int, list[int]] = {}
    for one, number in numbers.items():
        members.setdefault(number, []).append(one)
    in_cycles = dict.fromkeys(device for cycle in diagnosis.cycles for device in cycle)
    ends = dict.fromkeys(device for pair in diagnosis.without_end for device in pair)
    first = {numbers[device]: place for place, device in reversed([*enumerate((*in_cycles, *ends))])}
    order = sorted(members, key=lambda number: (first.get(number, len(states)), min(members[number])))
    waits_on = {number: {o for d in devices for o in states[d].waits_for} for number, devices in members.items()}
    places = {number: place for place, number in enumerate(order)}
    return tuple(
        EqualDevices(
            tuple(sorted(members[number])),
            states[min(members[number])],
            tuple(sorted({places[numbers[other]] for other in waits_on[number]})),
            tuple(sorted(waits_on[number])),
            _kind(states[min(members[number])], in_cycle=any(d in in_cycles for d in members[number])),
        )
        for number in order
    )


def of_rows(rows: Sequence[DeviceState]) -> list[list[DeviceState]]:
    """Devices that recorded the same communication, whatever the times; one by one where they are few."""
    if len(rows) <= FEW and all(event.begun is not None for device in rows for event in device.events):
        return [[device] for device in rows]
    found: dict[tuple[object, ...], list[DeviceState]] = {}
    for device in rows:
        file = None if device.location is None else device.location.file
        history = tuple((e.instruction, e.opcode, e.round, e.run, e.iteration) for e in device.events)
        found.setdefault((device.program, file, device.doing, history), []).append(device)
    return [*found.values()]


def _place(state: DeviceState) -> tuple[object, ...]:
    loops = tuple((loop.instruction, loop.iteration) for loop in state.loops)
    return (
        state.doing,
        state.program,
        state.location,
        state.instruction,
        state.round,
        state.channel,
        loops,
        state.host,
    )


def _numbered(keys: dict[int, tuple[object, ...]]) -> dict[int, int]:
    """By device a number, equal for equal keys."""
    numbers: dict[tuple[object, ...], int] = {}
    return {device: numbers.setdefault(key, len(numbers)) for device, key in keys.items()}


def _refined(numbers: dict[int, int], states: dict[int, DeviceState]) -> dict[int, int]:
    """The largest groups within these whose devices wait for devices of the same groups; or a few more than FEW."""
    while True:
        finer = _numbered({d: (numbers[d], _numbers_of(states[d].waits_for, numbers)) for d in numbers})
        if len(set(finer.values())) in (len(set(numbers.values())), *range(FEW + 1, len(finer) + 1)):
            return finer
        numbers = finer


def _numbers_of(devices: Iterable[int], numbers: dict[int, int]) -> frozenset[int]:
    return frozenset(numbers[device] for device in devices)


def _kind(state: DeviceState, *, in_cycle: bool) -> str:
    if in_cycle or state.doing is Doing.ARRIVED:
        return "cycle"
    if state.doing is Doing.WAITS:
        return "behind"
    return "free" if state.doing in (Doing.COMPUTES, Doing.NOT_BEGUN, Doing.STOPPED) else "over"


__all__ = ["FEW", "EqualDevices", "grouped", "of_rows"]
