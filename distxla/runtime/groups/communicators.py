"""State that devices of one host share to communicate: carved out of the control block, configured and zeroed."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_words import CopiedWords
from distxla.collectives.transports.transport import Restart
from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Block
from distxla.program.artifact import CommunicatorSpec
from distxla.runtime.streams.streams import ClusterStreams
from distxla.runtime.values.host import Host


@dataclass(frozen=True)
class _State:
    """State of a communicator. programs: numbers of those that use it; None among them keeps it for the cluster's
    life.  members: the devices that share it."""

    block: Block
    size: int
    programs: set[int | None]
    members: frozenset[int]


class Communicators:
    """The communicators of all programs that are loaded. Offsets are bytes in the control block, of every host.

    Facts that routines can't know when they are compiled (the device at the other end of a channel, the members on this
    host) are in words of the states, which the driver writes with `configure` while none of their members runs.

    A signal handler may raise at any line of any method: the next call of it does what was left undone. Threads may
    call methods at once, for programs of other devices. lock: while it is held no state comes or goes.
    """

    def __init__(
        self, block: ControlBlock, streams: ClusterStreams | None = None, remotes: Sequence[Host] = ()
    ) -> None:
        """block: of the driver's host.  remotes: the other hosts, which hear of words that are configured.
        streams: their states outlive failures; None where no program has any."""
        self._block = block
        self._remotes = {remote.index: remote for remote in remotes}
        self._streams = streams
        self._states: dict[tuple[Any, ...], _State] = {}
        self._configured: dict[int, int] = {}
        self._elsewhere: dict[int, dict[int, int]] = {index: {} for index in self._remotes}
        self._told: set[int] = set()  # hosts that may not have received the last writes yet
        self.lock = threading.RLock()  # no loop in its with-bodies: an interrupt there could leave it taken

    def place(self, spec: CommunicatorSpec, device: int, program: int | None) -> int | None:
        """The state of the device's group, None where it is in none; equal keys and groups share one state.

        program: the number of the one that asks, for `forget`; None keeps the state for the cluster's life.
        """
        if spec.stream is not None:
            assert self._streams is not None
            return self._streams.place(device, spec.stream)
        for group, size in zip(spec.groups, spec.state_bytes, strict=True):
            if device in group:
                return self.shared(_key(spec, group, size), size, program, group)
        return None

    def find(self, spec: CommunicatorSpec, device: int) -> int | None:
        """Where `place` has put the state of a program that is loaded."""
        if spec.stream is not None:
            assert self._streams is not None
            return self._streams.place(device, spec.stream)
        for group, size in zip(spec.groups, spec.state_bytes, strict=True):
            if device in group:
                return self._states[_key(spec, group, size)].block.offset
        return None

    def shared(self, key: tuple[Any, ...], size: int, program: int | None, members: Iterable[int]) -> int:
        """State of `size` bytes, shared by all users of `key`; zeroed when it is made and by `restart`.

        program: as for `place`.  members: the devices that use it.
        """
        with self.lock:
            found = self._states.get(key)
            if found is None:
                found = _State(self._block.allocate(size), size, {program}, frozenset(members))
                self._states[key] = found
            found.programs.add(program)
            return found.block.offset

    def users(self, key: tuple[Any, ...]) -> frozenset[int | None]:
        """The programs that use the state that `key` names; none where there is no such state."""
        found = self._states.get(key)
        return frozenset() if found is None else frozenset(found.programs)

    def forget(self, program: int) -> None:
        """Free the state that only this unloaded program used, while no device runs it."""
        with self.lock:
            self._forget(program)

    def _forget(self, program: int) -> None:
        for key, found in list(self._states.items()):
            if found.programs <= {program}:
                self._release(key, found)
            else:
                found.programs.discard(program)

    def _release(self, key: tuple[Any, ...], found: _State) -> None:
        begin, end = found.block.offset, found.block.offset + found.size
        for words in (self._configured, *self._elsewhere.values()):
            for word in [word for word in words if begin <= 4 * word < end]:
                del words[word]
        self.zero(begin, found.size)
        del self._states[key]  # and the block, which goes with its last reference: none is freed before it is zeroed

    def zero(self, offset: int, size: int) -> None:
        """Zero bytes of the control block on every host, for those who get them next."""
        with self.lock:
            self._zero(offset, size)

    def _zero(self, offset: int, size: int) -> None:
        self._block.segment.bytes[offset : offset + size] = 0
        for index, remote in self._remotes.items():
            self._told.add(index)
            remote.control_zero(offset, size)

    def configure(self, offset: int, *values: int) -> None:
        """Write u32 words from `offset` on, on every host; `restart` leaves them as they are."""
        with self.lock:
            self._configure(offset, *values)

    def _configure(self, offset: int, *values: int) -> None:
        for index in (0, *self._remotes):
            self.configure_host(index, offset, *values)

    def configure_host(self, index: int, offset: int, *values: int) -> None:
        """Write u32 words that differ from host to host. index: of the host, 0 for the driver's.

        After a Ctrl-C during the call, call it again: a word counts as written only when it was.
        """
        with self.lock:
            self._configure_host(index, offset, *values)

    def _configure_host(self, index: int, offset: int, *values: int) -> None:
        known = self._configured if index == 0 else self._elsewhere[index]
        for word, value in enumerate(values, offset // 4):
            if known.get(word) != value:
                if index == 0:
                    self._block.configure(4 * word, value)
                else:
                    self._told.add(index)
                    self._remotes[index].control_write(4 * word, value.to_bytes(4, "little"))
                known[word] = value

    def restart(self, index: int, epoch: int, devices: Collection[int] | None = None) -> Restart:
        """The state with which a host restarts after a failed call: all is zeroed but the configured words.

        devices: where others may run, those that have failed: the state that they use is zeroed, but for what is kept
        for the cluster's life, of which others may use a part.
        """
        with self.lock:
            return self._restart(index, epoch, devices)

    def _restart(self, index: int, epoch: int, devices: Collection[int] | None) -> Restart:
        states = self._states.values()
        words = self._elsewhere[index] if index else self._configured
        if devices is None:
            return Restart(epoch, tuple((found.block.offset, found.size) for found in states), tuple(words.items()))
        mine = [one for one in states if None not in one.programs and not one.members.isdisjoint(devices)]
        areas = sorted((found.block.offset, found.size) for found in mine)
        inside = [(word, value) for word, value in words.items() if _is_inside(4 * word, areas)]
        return Restart(epoch, tuple(areas), tuple(inside))

    def clear(self, offset: int, size: int) -> None:
        """Zero a part of some state while none of its members runs, but for the words that were configured."""
        with self.lock:
            self._clear(offset, size)

    def _clear(self, offset: int, size: int) -> None:
        self._told.update(self._remotes)
        for index, remote in self._remotes.items():
            remote.control_write(offset, _cleared(self._elsewhere[index], offset, size))
        # at once: an interrupt must not leave a configured word zeroed
        cleared = np.frombuffer(_cleared(self._configured, offset, size), np.uint8)
        self._block.segment.bytes[offset : offset + size] = cleared

    def read(self, index: int, offset: int, size: int, seconds: float | None = None) -> CopiedWords:
        """The words of a state as they are on another host; blocks. Raises as `Host.control_read`."""
        return CopiedWords(self._remotes[index].control_read(offset, size, seconds), offset)

    def await_others(self) -> None:
        """Block until the other hosts have written the configured or cleared words: devices elsewhere may begin to
        send to them before they begin to run. Raises as `Host.control_read`."""
        for index in sorted(self._told):
            self._remotes[index].control_read(0, 8)
        self._told.clear()


def _is_inside(place: int, areas: Sequence[tuple[int, int]]) -> bool:
    """Whether a byte is in one of these areas (offset, size), which are sorted."""
    k = bisect_right(areas, place, key=lambda area: area[0])
    return k > 0 and place < sum(areas[k - 1])


def _cleared(words: dict[int, int], offset: int, size: int) -> bytes:
    """Zeros, and the u32 of `words` that are in these bytes of the control block."""
    found = bytearray(size)
    for word in range(offset // 4, (offset + size) // 4):
        if word in words:
            found[4 * word - offset : 4 * word - offset + 4] = words[word].to_bytes(4, "little")
    return bytes(found)


def _key(spec: CommunicatorSpec, group: tuple[int, ...], size: int) -> tuple[Any, ...]:
    return spec.common_key or spec.key, group, size
