"""Members that came to a round with different instructions, and rounds that can never be complete.

Two that meet are compared by the round itself (Status.MISMATCH). Those who don't even meet, since the groups they wait
in differ or one of them has nothing left to run, are found here, from the records and the groups' counters, while they
wait. Only what is certain is reported. A device is held by those whose coming its wait needs, all of them; it stays so
while the word that it sleeps on has the value it sleeps for. Two that hold each other, seen to do so at two looks with
nothing changed in between, can be released by nobody; nor can one that is held by a device whose program has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from distxla.codegen.abi import Status
from distxla.codegen.program import CompiledProgram, Site
from distxla.collectives import control_block as control
from distxla.collectives import state
from distxla.collectives.signature import differences
from distxla.errors import CollectiveMismatchError, DeadlockError, DistxlaError
from distxla.runtime.communicators import Communicators
from distxla.runtime.hosts.host import Records
from distxla.runtime.memory import ControlBlock
from distxla.runtime.watch import site_text

UNSIGNED = 1 << 32


@dataclass(frozen=True)
class _Held:
    """A device that sleeps on a word which has not changed: where, and who must come. Equal while nothing changes."""

    device: int
    program: int
    site: int
    round: int
    by_group: bool
    others: tuple[int, ...]


class Meetings:
    """Looks at one host's devices: who waits for whom in which round."""

    def __init__(self, block: ControlBlock, devices: Sequence[int], communicators: Communicators) -> None:
        self._block, self._communicators = block, communicators
        self._devices = frozenset(devices)

    def look(self, running: Sequence[int], programs: Mapping[int, CompiledProgram]) -> DistxlaError | None:
        """What keeps a round of the call from ever being complete; None where nothing is known to.

        running: all devices that have a part in the call, wherever they are.
        """
        held = {found.device: found for device in running if (found := self._held(device, programs)) is not None}
        taking_part = frozenset(running)
        for one in held.values():
            for other in one.others:
                theirs = held.get(other)
                ended = other not in taking_part or (other in self._devices and not self._runs(other))
                mutual = theirs is not None and one.device in theirs.others
                if not ended and not mutual:
                    continue
                if self._held(one.device, programs) != one:
                    continue
                if ended:
                    return self._never(one, other, programs, took_part=other in taking_part)
                if theirs is not None and self._held(other, programs) == theirs:
                    return self._apart(one, theirs, programs)
        return None

    def _runs(self, device: int) -> bool:
        return self._field(device, control.R_COMMAND_KIND) == control.CommandKind.RUN

    def _field(self, device: int, field: int) -> int:
        return self._block.words[(control.record_offset(device) + field) // 4]

    def _long(self, device: int, field: int) -> int:
        return self._block.longs[(control.record_offset(device) + field) // 8]

    def _held(self, device: int, programs: Mapping[int, CompiledProgram]) -> _Held | None:
        """None for a device that runs, or whose wait is over although it may not have noticed yet."""
        block = self._block
        if device not in self._devices or self._field(device, control.R_STATE) != control.DeviceState.WAITING:
            return None
        word = self._long(device, control.R_WAIT_WORD)
        if word == 0 or block.words[word // 4] != self._field(device, control.R_WAIT_VALUE):
            return None
        number, index = self._field(device, control.R_PROGRAM), self._field(device, control.R_SITE)
        program, round_ = programs.get(number), self._long(device, control.R_ROUND)
        if program is None or index >= len(program.sites):
            return None
        waits_for = self._field(device, control.R_WAITS_FOR)
        if waits_for < block.devices:
            return _Held(device, number, index, round_, False, (waits_for,))
        if waits_for != UNSIGNED + control.WAITS_FOR_GROUP:
            return None
        return _Held(device, number, index, round_, True, tuple(self._missing(device, program, index, round_)))

    def _missing(self, device: int, program: CompiledProgram, index: int, round_: int) -> Iterator[int]:
        """The members on this host that have not come to that round of the device's group."""
        spec = program.communicators[program.sites[index].communicator]
        group = next((group for group in spec.groups if device in group), ())
        offset = self._communicators.place(spec, device)
        for position, member in enumerate(group if offset is not None else ()):
            begun = ((offset or 0) + state.G_BEGUN + position * state.LINE) // 8
            if member in self._devices and self._block.longs[begun] < round_:
                yield member

    def _apart(self, one: _Held, other: _Held, programs: Mapping[int, CompiledProgram]) -> DistxlaError:
        mine, theirs = (programs[held.program].sites[held.site] for held in (one, other))
        text = (
            f"device {one.device} waits in {site_text(mine)} for device {other.device}, which waits in "
            f"{site_text(theirs)} for device {one.device}: neither can go on"
        )
        if not one.by_group and not other.by_group:
            return DeadlockError(text, mine.location)
        return CollectiveMismatchError(text + _differing(mine, theirs), mine.location)

    def _never(
        self, one: _Held, other: int, programs: Mapping[int, CompiledProgram], *, took_part: bool
    ) -> DistxlaError:
        mine = programs[one.program].sites[one.site]
        why = "whose program has ended" if took_part else "which runs nothing in this call"
        text = f"device {one.device} waits in {site_text(mine)} for device {other}, {why}"
        return DeadlockError(text, mine.location)


def mismatch(records: Records, devices: Sequence[int], programs: Mapping[int, CompiledProgram]) -> DistxlaError:
    """What the members of a mismatched round ran, as one of `devices` found out."""
    for device in devices:
        if records.record(device, control.R_STATUS) != Status.MISMATCH:
            continue
        other = records.record(device, control.R_MISMATCH_DEVICE)
        mine = _site(records, device, records.record(device, control.R_SITE), programs)
        theirs = _site(records, other, records.record(device, control.R_MISMATCH_SITE), programs)
        if mine is None or theirs is None:
            break
        return CollectiveMismatchError(
            f"device {device} runs {site_text(mine)}, device {other} runs {site_text(theirs)} in the same round"
            + _differing(mine, theirs),
            mine.location,
        )
    return CollectiveMismatchError("members came to a round with different instructions")


def _site(records: Records, device: int, index: int, programs: Mapping[int, CompiledProgram]) -> Site | None:
    program = programs.get(records.record(device, control.R_PROGRAM)) if device < records.devices else None
    return program.sites[index] if program is not None and index < len(program.sites) else None


def _differing(mine: Site, theirs: Site) -> str:
    found = differences(mine.facets, theirs.facets)
    return f"; they differ in {found}" if found else ""
