"""Devices that can never go on, found while they wait, from the records and the words that they sleep on.

A device waits while the word that it sleeps on has the value that it sleeps for. The devices that must come are known:
the missing members of a group, all of them, or the other end of a pair. So there is a graph (diagnosis/graph.py), and a
device that is stuck in it is stuck whatever the timing. Anything that may still be in flight counts as a device that
goes on: a host that feeds, a proxy that carries a post of the other end.

Reading takes a while in which devices go on. So the stuck devices are looked at twice, one look after the other; where
all their waits are the same in both, these waits lasted from the first look to the second, all of them at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.diagnosis.graph import Clauses, Deadlock, all_of, find_deadlock
from distxla.errors import ClusterError, ReplicaLostError
from distxla.lazy_dataclass import dataclass
from distxla.program.artifact import CommunicatorSpec, CompiledProgram
from distxla.runtime.failures.record_views import Here, There, View
from distxla.runtime.groups.communicators import Communicators
from distxla.runtime.hosts.remote import RemoteHost

FAR_S = 0.25  # between looks at other hosts, each of which takes some round trips
SETTLE_S = 0.3  # for other devices to stop once one is known to be stuck


@dataclass(frozen=True)
class BlockedWait:
    """A device that sleeps on a word which has not changed, and the others it waits for. Equal while the wait lasts.

    others: the devices that must come.  host: it waits for the host's end of a stream.  certain: no other device, and
    nothing that is in flight, can release it.
    """

    device: int
    program: int
    site: int
    run: int
    round: int
    word: int
    value: int
    others: tuple[int, ...]
    host: bool = False
    certain: bool = True

    @property
    def wait(self) -> tuple[int, ...]:
        """Equal while the same wait lasts, even if more members arrive or more hosts are asked in that time."""
        return self.device, self.program, self.site, self.run, self.round, self.word, self.value


@dataclass(frozen=True)
class Stuck:
    """The result of a look: the devices that can never go on, and all waits of that moment, by device."""

    deadlock: Deadlock
    blocked: Mapping[int, BlockedWait]


class Deadlocks:
    """Looks at the devices of all hosts.

    remotes: the other hosts, which are asked every FAR_S seconds only.  blocked: by device the waits that the last look
    at its host has found.
    """

    def __init__(
        self,
        block: ControlBlock,
        devices: Sequence[int],
        communicators: Communicators,
        remotes: Sequence[RemoteHost] = (),
    ) -> None:
        """block: of the driver's host, where these devices live."""
        self._count = block.devices
        self._communicators = communicators
        here = Here(block)
        self._here: dict[int, View] = dict.fromkeys(devices, here)
        self._there = [There(remote) for remote in remotes]
        self._everywhere: dict[int, View] = {
            **self._here,
            **{device: view for view in self._there for device in view.remote.devices},
        }
        self._views: Mapping[int, View] = self._here
        self._missing: dict[tuple[int, int], tuple[int, ...]] = {}
        self._groups: dict[tuple[int, int], tuple[CommunicatorSpec, int | None, tuple[int, ...]]] = {}
        self._looked = 0.0
        self.blocked: Mapping[int, BlockedWait] = {}

    def forget(self) -> None:
        """A program was unloaded: the cached groups may be wrong now."""
        self._groups.clear()

    def look(self, running: Sequence[int], programs: Mapping[int, CompiledProgram]) -> Stuck | None:
        """The devices of a call that can never go on; None where none is known to be stuck.

        running: all devices that have a part in the call, wherever they are.  programs: by number.
        """
        self._views = self._here
        if self._there and clock.now() - self._looked >= FAR_S:
            self._views = self._everywhere
            self._looked = clock.now()
        try:
            return self._look(frozenset(running), programs)
        except (ClusterError, ReplicaLostError):  # a host can't be reached, which others report
            return None

    def settled(self, stuck: Stuck, running: Sequence[int], programs: Mapping[int, CompiledProgram]) -> Stuck:
        """The same a moment later, when the other devices have stopped, if that is soon: so the report shows where
        they are, too. Blocks for SETTLE_S at most."""
        self._views = self._everywhere
        end = clock.now() + SETTLE_S
        with contextlib.suppress(ClusterError, ReplicaLostError):
            while clock.now() < end:
                found = self._look(frozenset(running), programs) or stuck
                stuck = found if len(found.deadlock.stuck) >= len(stuck.deadlock.stuck) else stuck
                if all(
                    d in self.blocked or ((v := self._views.get(d)) is not None and v.has_ended(d)) for d in running
                ):
                    break
                clock.sleep(SETTLE_S / 20)
        return stuck

    def missing(
        self, device: int, program: CompiledProgram, site: int, round_: int, *, everywhere: bool
    ) -> tuple[int, ...]:
        """The members of a device's group that have not reached a round of it, as far as they can be asked.

        everywhere: on other hosts, too.
        """
        self._views = self._everywhere if everywhere else self._here
        spec = program.communicators[program.sites[site].communicator]
        try:
            return self._members_missing(spec, device, round_)
        except (ClusterError, ReplicaLostError):
            return ()

    def refresh(self, *, everywhere: bool) -> None:
        """Forget the cached members of groups; `missing` then reads them again."""
        self._views = self._everywhere if everywhere else self._here
        with contextlib.suppress(ClusterError, ReplicaLostError):
            self._refresh()

    def _look(self, running: frozenset[int], programs: Mapping[int, CompiledProgram]) -> Stuck | None:
        blocked = self._snapshot(running, programs)
        if not blocked:
            return None
        ended = self._ended(running, blocked)
        found = self._decide(blocked, ended)
        if found is None:
            return None
        again = self._snapshot(running, programs)
        same = {device: one for device, one in again.items() if blocked.get(device) == one}
        found = self._decide(same, ended)
        return None if found is None else Stuck(found, again)

    def _snapshot(self, running: frozenset[int], programs: Mapping[int, CompiledProgram]) -> dict[int, BlockedWait]:
        self._refresh()
        found = {device: one for device in running if (one := self._blocked_wait(device, programs)) is not None}
        elsewhere = {device: one for device, one in self.blocked.items() if device not in self._views}
        self.blocked = {**elsewhere, **found} if elsewhere else found
        return found

    def _refresh(self) -> None:
        self._missing = {}
        if self._views is not self._here:
            for view in self._there:
                view.refresh()

    def _decide(self, blocked: Mapping[int, BlockedWait], ended: frozenset[int]) -> Deadlock | None:
        waiting = {device: one.others for device, one in blocked.items() if one.certain and not one.host and one.others}
        clauses: dict[tuple[int, ...], Clauses] = {others: all_of(others) for others in dict.fromkeys(waiting.values())}
        waits = {device: clauses[others] for device, others in waiting.items()}
        return find_deadlock(waits, ended) if waits else None

    def _ended(self, running: frozenset[int], blocked: Mapping[int, BlockedWait]) -> frozenset[int]:
        """Of the devices that others wait for those that have no part in the call, or not any more."""
        wanted = {other for one in blocked.values() for other in one.others}
        return frozenset(
            device
            for device in wanted
            if device not in running or ((view := self._views.get(device)) is not None and view.has_ended(device))
        )

    def _blocked_wait(self, device: int, programs: Mapping[int, CompiledProgram]) -> BlockedWait | None:
        """None for a device that runs, or whose wait is over although it may not have noticed yet."""
        view = self._views.get(device)
        if view is None:
            return None
        record = control_words.record_offset(device)
        if view.load(control_words.R_STATE, record) != control_words.ReplicaState.WAITING:
            return None
        place, value = view.load(control_words.R_WAIT_WORD, record), view.load(control_words.R_WAIT_VALUE, record)
        if place == 0 or view.load_at(place) != value:
            return None
        number, index = view.load(control_words.R_PROGRAM, record), view.load(control_words.R_SITE, record)
        program, round_ = programs.get(number), view.load(control_words.R_ROUND, record)
        if program is None or index >= len(program.sites):
            return None
        run, waits_for = view.load(control_words.R_RUN, record), view.load(control_words.R_WAITS_FOR, record)
        view.fence()
        if (view.load(control_words.R_WAIT_WORD, record), view.load(control_words.R_WAIT_VALUE, record)) != (
            place,
            value,
        ):
            return None  # of another wait
        if view.load_at(place) != value:
            return None  # words never have an earlier value again: so all of this was read during one wait
        where = (device, number, index, run, round_, place, value)
        spec = program.communicators[program.sites[index].communicator]
        if waits_for < self._count:
            return BlockedWait(*where, (waits_for,), certain=self._nothing_is_in_flight(spec, where, waits_for))
        if waits_for == control_words.UNSIGNED + control_words.WAITS_FOR_GROUP:
            return BlockedWait(*where, self._members_missing(spec, device, round_))
        return BlockedWait(*where, (), host=True, certain=False)

    def _members_missing(self, spec: CommunicatorSpec, device: int, round_: int) -> tuple[int, ...]:
        """The members that have not reached that round of the device's group, as far as they are looked at."""
        offset, group = self._group_of(spec, device)
        if offset is None:
            return ()
        found = self._missing.get((offset, round_))
        if found is None:
            found = tuple(
                member
                for position, member in enumerate(group)
                if (view := self._views.get(member)) is not None
                and view.load(group_words.G_MEMBER_BEGUN, offset + group_words.begun_of(position)) < round_
            )
            self._missing[offset, round_] = found
        return found

    def _group_of(self, spec: CommunicatorSpec, device: int) -> tuple[int | None, tuple[int, ...]]:
        """The offset of the state of the device's group, and its members; finding that takes long in large groups."""
        key = id(spec), device
        found = self._groups.get(key)  # once: another thread may forget them
        if found is None:
            group = next((group for group in spec.groups if device in group), ())
            found = self._groups[key] = spec, self._communicators.find(spec, device), group
        return found[1:]

    def _nothing_is_in_flight(
        self, spec: CommunicatorSpec, where: tuple[int, int, int, int, int, int, int], other: int
    ) -> bool:
        """Whether the other end of a pair on another host has not yet made the write that the device waits for,
        according to the words on its own host."""
        device, _, _, _, round_, place, value = where
        theirs = self._views.get(other)
        if theirs is None:
            return False
        if theirs is self._views[device]:
            return True
        if theirs.load_at(place) != value:
            return False
        if not spec.pairs:
            return True
        offset, _ = self._group_of(spec, device)
        if offset is None:
            return False
        message = permute_words.message_at(place - offset)
        if message is None or place - offset - message != permute_words.M_TAKEN:
            return True
        if self._views[device].load(permute_words.M_LEAVES, offset + message) == 0:
            return True  # the source waits for the target to take a small message, which only that does
        # the source waits: proxies take a large message out of its operand as soon as the target has begun the round
        number = round_ - 1
        if value < number // permute_words.RING:
            number -= permute_words.RING
        return theirs.load(permute_words.P_READY, offset + permute_words.pair_at(place - offset)) <= number


__all__ = ["BlockedWait", "Deadlocks", "Stuck"]
