"""Members that came to a round with different instructions, and rounds that can never be complete.

Two that meet are compared by the round itself (Status.MISMATCH). Those who don't even meet, since the groups they wait
in differ or one of them has nothing left to run, are found here, from the records and the groups' counters, while they
wait. Only what is certain is reported. A device is held by those whose coming its wait needs, all of them; it stays so
while the word that it sleeps on has the value it sleeps for. Two that hold each other, seen to do so twice with nothing
changed in between, can be released by nobody; nor can one that is held by a device whose program has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from distxla.codegen.abi import Status
from distxla.codegen.program import CompiledProgram, Site
from distxla.collectives import control_block as control
from distxla.collectives import state
from distxla.collectives.signature import differences
from distxla.errors import ClusterError, CollectiveMismatchError, DeadlockError, DistxlaError, ReplicaLostError
from distxla.runtime.communicators import Communicators
from distxla.runtime.hosts.host import Records
from distxla.runtime.hosts.remote import RemoteHost
from distxla.runtime.memory import ControlBlock
from distxla.runtime.watch import site_text

UNSIGNED = 1 << 32
FAR_S = 0.25  # between looks at other hosts, each of which takes some round trips


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
    """Looks at the devices of all hosts: who waits for whom in which round.

    remotes: the other hosts, which are asked every FAR_S seconds only.
    """

    def __init__(
        self,
        block: ControlBlock,
        devices: Sequence[int],
        communicators: Communicators,
        remotes: Sequence[RemoteHost] = (),
    ) -> None:
        self._devices = block.devices
        self._communicators = communicators
        here = _Here(block)
        self._here = dict.fromkeys(devices, here)
        self._there = [_There(remote) for remote in remotes]
        self._far = {device: view for view in self._there for device in view.remote.devices}
        self._views: Mapping[int, _View] = self._here
        self._looked = 0.0

    def look(self, running: Sequence[int], programs: Mapping[int, CompiledProgram]) -> DistxlaError | None:
        """What keeps a round of the call from ever being complete; None where nothing is known to.

        running: all devices that have a part in the call, wherever they are.
        """
        self._views = self._here
        if self._there and time.monotonic() - self._looked >= FAR_S:
            self._views = {**self._here, **self._far}
            self._looked = time.monotonic()
        try:
            return self._look(frozenset(running), programs)
        except (ClusterError, ReplicaLostError):  # a host can't be reached, which others report
            return None

    def _look(self, running: frozenset[int], programs: Mapping[int, CompiledProgram]) -> DistxlaError | None:
        self._refresh()
        held = {found.device: found for device in running if (found := self._held(device, programs)) is not None}
        suspects = [
            pair for one in held.values() for other in one.others if (pair := self._pair(one, other, held, running))
        ]
        if not suspects:
            return None
        self._refresh()
        for one, other, theirs in suspects:
            if self._held(one.device, programs) != one:
                continue
            if theirs is None:
                return self._never(one, other, programs, took_part=other in running)
            if self._held(other, programs) == theirs:
                return self._apart(one, theirs, programs)
        return None

    def _pair(
        self, one: _Held, other: int, held: Mapping[int, _Held], running: frozenset[int]
    ) -> tuple[_Held, int, _Held | None] | None:
        """What may be wrong between a device and one that it waits for."""
        theirs = held.get(other)
        if other not in running:
            return one, other, None
        if not self._is_certain(one, other) or (theirs is not None and not self._is_certain(theirs, one.device)):
            return None
        if other in self._views and self._views[other].has_ended(other):
            return one, other, None
        return (one, other, theirs) if theirs is not None and one.device in theirs.others else None

    def _is_certain(self, one: _Held, other: int) -> bool:
        """Whether nobody but the other device can release this one: between hosts a relay may hold what it sent."""
        return one.by_group or self._views.get(one.device) is self._views.get(other)

    def _refresh(self) -> None:
        if self._views is not self._here:
            for view in self._there:
                view.refresh()

    def _held(self, device: int, programs: Mapping[int, CompiledProgram]) -> _Held | None:
        """None for a device that runs, or whose wait is over although it may not have noticed yet."""
        view = self._views.get(device)
        if view is None:
            return None
        record = control.record_offset(device)
        if view.word(record + control.R_STATE) != control.DeviceState.WAITING:
            return None
        word = view.long(record + control.R_WAIT_WORD)
        if word == 0 or view.word(word) != view.word(record + control.R_WAIT_VALUE):
            return None
        number, index = view.word(record + control.R_PROGRAM), view.word(record + control.R_SITE)
        program, round_ = programs.get(number), view.long(record + control.R_ROUND)
        if program is None or index >= len(program.sites):
            return None
        waits_for = view.word(record + control.R_WAITS_FOR)
        if waits_for < self._devices:
            return _Held(device, number, index, round_, False, (waits_for,))
        if waits_for != UNSIGNED + control.WAITS_FOR_GROUP:
            return None
        return _Held(device, number, index, round_, True, tuple(self._missing(device, program, index, round_)))

    def _missing(self, device: int, program: CompiledProgram, index: int, round_: int) -> Iterator[int]:
        """The members that have not come to that round of the device's group, as far as they are looked at."""
        spec = program.communicators[program.sites[index].communicator]
        group = next((group for group in spec.groups if device in group), ())
        offset = self._communicators.place(spec, device)
        for position, member in enumerate(group if offset is not None else ()):
            view, begun = self._views.get(member), (offset or 0) + state.G_BEGUN + position * state.LINE
            if view is not None and view.long(begun) < round_:
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


class _View(Protocol):
    """The control block of a host."""

    def word(self, offset: int) -> int:
        """A u32."""

    def long(self, offset: int) -> int:
        """A u64."""

    def has_ended(self, device: int) -> bool:
        """Whether the device's part in the call is over."""


class _Here:
    """The driver's own."""

    def __init__(self, block: ControlBlock) -> None:
        self._block = block

    def word(self, offset: int) -> int:
        return self._block.words[offset // 4]

    def long(self, offset: int) -> int:
        return self._block.longs[offset // 8]

    def has_ended(self, device: int) -> bool:
        return self.word(control.record_offset(device) + control.R_COMMAND_KIND) != control.CommandKind.RUN


class _There:
    """Another host's, as it was after the last `refresh`, which forgets what is known."""

    def __init__(self, remote: RemoteHost) -> None:
        self.remote = remote
        self._first = control.record_offset(remote.devices.start)
        self._records = b""
        self._lines: dict[int, bytes] = {}

    def refresh(self) -> None:
        size = len(self.remote.devices) * control.RECORD_BYTES
        self._records, self._lines = self.remote.control_read(self._first, size), {}

    def word(self, offset: int) -> int:
        return int.from_bytes(self._bytes(offset, 4), "little")

    def long(self, offset: int) -> int:
        return int.from_bytes(self._bytes(offset, 8), "little")

    def _bytes(self, offset: int, size: int) -> bytes:
        at = offset - self._first
        if 0 <= at < len(self._records):
            return self._records[at : at + size]
        line = offset // state.LINE * state.LINE
        if line not in self._lines:
            self._lines[line] = self.remote.control_read(line, state.LINE)
        return self._lines[line][offset - line : offset - line + size]

    def has_ended(self, device: int) -> bool:
        """That of all its devices: each one's command may still be under way to it."""
        return not self.remote.is_running


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
