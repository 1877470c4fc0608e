"""Connecting the sends and recvs of the programs of a call: the device at the other end, and the state they share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from distxla import clock
from distxla.collectives.channels import ProgramTransfers, pair_up
from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.protocols.control_block import H_ABORT
from distxla.collectives.protocols.layout import u32_words
from distxla.collectives.transfer import Route, Transfer
from distxla.collectives.transports.shared_words import CopiedWords, SharedWords
from distxla.errors import ClusterError, DistxlaError
from distxla.ir.counts import Counts
from distxla.lazy_dataclass import dataclass, replace
from distxla.machine.heap import Block
from distxla.program.artifact import CommunicatorSpec, CompiledProgram
from distxla.program.channel_end import End
from distxla.runtime.groups.communicators import Communicators

SETTLE_S = 0.2  # for the last frames to cross from host to host
Loaded = tuple[int, CompiledProgram, tuple[int, ...]]  # number, program, the devices that run it


@dataclass(frozen=True)
class ChannelPair:
    """The shared state of a pair. offset: in the control block.  hosts: of source and target.  bounce_buffers: a place
    for values, where it has one; bounce_buffer_bytes: of one value."""

    number: int
    source: int
    target: int
    offset: int
    slot_bytes: int
    hosts: tuple[int, int]
    bounce_buffers: Block | None
    bounce_buffer_bytes: int


class ClusterChannels:
    """The pairs of all channels of a cluster. in_use: those of the call that `connect` was for.

    A pair's state stays from call to call: both sides have counted as many transfers when a call is over.

    A signal handler may raise at any line: the next call of a method does what was left undone. So a pair and its
    number come and go by one assignment that calls nothing.
    """

    def __init__(
        self,
        communicators: Communicators,
        block: SharedWords,
        allocate: Callable[[int], Block],
        counts: Counts,
        hosts: Sequence[range],
    ) -> None:
        """block: the control block.  allocate: bytes at one offset of all devices' memory.
        hosts: the devices of each host, the driver's first."""
        self._communicators = communicators
        self._block, self._allocate = block, allocate
        self._counts, self._hosts = counts, hosts
        devices = tuple(range(counts.devices))
        self._directory = CommunicatorSpec(channel_words.DIRECTORY_KEY, (devices,), (channel_words.DIRECTORY_BYTES,))
        self._ends: dict[int, tuple[tuple[int, End], ...]] = {}
        self._lock = threading.RLock()  # of all below: programs of other devices may be connected at the same time
        self._pairs: dict[tuple[int, ...], ChannelPair] = {}
        self._numbers = 0  # given to pairs so far
        self._free_numbers: list[int] = []  # of pairs that were removed
        self._connected: tuple[tuple[int, tuple[int, ...]], ...] = ()
        self.in_use: list[ChannelPair] = []

    def connect(self, calls: Sequence[Loaded]) -> None:
        """Make the channels of programs ready that are about to run together, while none of their devices runs.

        Raises VerificationError where a send or recv has no counterpart among them.
        """
        ends = [self._find_ends(number, program) for number, program, _ in calls]
        if any(ends):
            with self._lock:
                self._connect_all(calls)

    def _connect_all(self, calls: Sequence[Loaded]) -> None:
        key = tuple((number, devices) for number, _, devices in calls)
        if key != self._connected:
            self._connected = ()
            self._connect(calls)
            self._connected = key
        for pair in self.in_use:
            self._settle(pair)

    def _find_ends(self, number: int, program: CompiledProgram) -> tuple[tuple[int, End], ...]:
        """(communicator, end) of the program's sends and recvs."""
        found = self._ends.get(number)
        if found is None:
            places = {site.communicator: site.location for site in program.sites}
            found = self._ends[number] = tuple(
                (k, replace(spec.channel, location=places.get(k)))
                for k, spec in enumerate(program.communicators)
                if spec.channel is not None
            )
        return found

    def _connect(self, calls: Sequence[Loaded]) -> None:
        found = [(world, self._transfers(world)) for world in _worlds(calls)]
        for number, program, devices in calls:
            for k, _ in self._ends[number]:
                for device in devices:
                    self._configure_end(number, program.communicators[k], device, None, None)
        self.in_use = []
        for world, transfers in found:
            self._connect_world(world, transfers)

    def _transfers(self, world: Sequence[Loaded]) -> tuple[Transfer, ...]:
        """Those between the devices of programs that know each other."""
        sides = [ProgramTransfers(devices, tuple(end for _, end in self._ends[number])) for number, _, devices in world]
        program = world[0][1]
        counts = self._counts if program.assignment is None else program.counts
        return pair_up(sides, counts, compiled=True, assignment=program.assignment)

    def _connect_world(self, calls: Sequence[Loaded], transfers: Sequence[Transfer]) -> None:
        for transfer in transfers:
            pair = self._pair(transfer, {calls[route.program][0] for route in (*transfer.sends, *transfer.recvs)})
            self.in_use.append(pair)
            for device, routes in ((transfer.source, transfer.sends), (transfer.target, transfer.recvs)):
                for route in routes:
                    number, program, _ = calls[route.program]
                    spec = program.communicators[self._communicator(number, route)]
                    self._configure_end(number, spec, device, pair, route.bounds)

    def _communicator(self, number: int, route: Route) -> int:
        return next(k for k, end in self._ends[number] if end == route.end)

    def _configure_end(
        self, number: int, spec: CommunicatorSpec, device: int, pair: ChannelPair | None, bounds: tuple[int, int] | None
    ) -> None:
        place = self._communicators.place(spec, device, number)
        assert place is not None
        first, last = (0, channel_words.ALWAYS) if bounds is None else (max(0, bounds[0]), bounds[1])
        if pair is None or last < first:
            words = {channel_words.E_PAIR: 0, channel_words.E_NUMBER: 0}
        else:
            words = {
                channel_words.E_PAIR: pair.offset,
                channel_words.E_NUMBER: pair.number,
                channel_words.E_FIRST: first,
                channel_words.E_LAST: last,
            }
        self._communicators.configure(place + channel_words.E_PAIR, *u32_words(words))

    def _pair(self, transfer: Transfer, programs: set[int]) -> ChannelPair:
        """The state in which a transfer's devices meet, large enough for all its sends and recvs.

        programs: the numbers of those that take part.
        """
        ends = [route.end for route in (*transfer.sends, *transfer.recvs)]
        source, target = transfer.source, transfer.target
        hosts = self._host(source), self._host(target)
        slot = max(channel_words.slot_bytes(end.payload) for end in ends)
        # A zero-copy value needs no bounce buffer, unless the other side can't reach it, or so many recvs may be in
        # flight that one finds the slot where it would post its place still in use.
        reachable = hosts[0] == hosts[1] and len(transfer.recvs) <= channel_words.RING
        bounce_bytes = max(0 if end.zero_copy and reachable else channel_words.packed(end.payload)[1] for end in ends)
        bounce_bytes = bounce_bytes if bounce_bytes > channel_words.EAGER_VALUE_BYTES else 0
        key = (transfer.channel, transfer.stream, source, target, slot, bounce_bytes)
        for program in programs:
            size = channel_words.pair_bytes(slot)
            offset = self._communicators.shared(("channel pair", *key), size, program, (source, target))
        if key not in self._pairs:
            bounce_buffers = self._allocate(channel_words.RING * bounce_bytes) if bounce_bytes else None
            number = self._free_number()
            made = ChannelPair(number, source, target, offset, slot, hosts, bounce_buffers, bounce_bytes)
            if number > self._numbers:
                self._pairs[key], self._numbers = made, number
            else:
                self._pairs[key], self._free_numbers[-1:] = made, ()
        found = self._pairs[key]
        self._configure_pair(found)  # an old one, too: Ctrl-C may have come before it was configured
        return found

    def _free_number(self) -> int:
        """A pair's number that no other has: the last of the free ones, else the next."""
        if self._free_numbers:
            return self._free_numbers[-1]
        if self._numbers + 1 >= channel_words.MOST_PAIRS:
            raise ClusterError(f"too many channels: {self._numbers + 1} pairs of devices and channels")
        return self._numbers + 1

    def _configure_pair(self, pair: ChannelPair) -> None:
        place = pair.bounce_buffers.offset if pair.bounce_buffers is not None else 0
        words = {
            channel_words.C_SOURCE: pair.source,
            channel_words.C_TARGET: pair.target,
            channel_words.C_SLOT_BYTES: pair.slot_bytes,
            channel_words.C_BOUNCE_BUFFERS: place,
            channel_words.C_BOUNCE_BUFFER_BYTES: pair.bounce_buffer_bytes,
        }
        self._communicators.configure(pair.offset + channel_words.C_SOURCE, *u32_words(words))
        for host in range(len(self._hosts)):
            device = pair.target if host == pair.hosts[1] != pair.hosts[0] else pair.source
            self._communicators.configure_host(host, pair.offset + channel_words.C_BOUNCE_BUFFER_DEVICE, device)
        self._enter(pair, pair.offset)

    def _enter(self, pair: ChannelPair, offset: int) -> None:
        """Write where a pair's state is into the directory; 0: nowhere."""
        directory = self._communicators.place(self._directory, pair.source, None)
        assert directory is not None
        entry = directory + channel_words.D_PAIRS + 8 * pair.number
        self._communicators.configure(entry, *u32_words({channel_words.D_PAIRS: offset}))

    def forget(self, number: int) -> None:
        """Remove the pairs that only this unloaded program used, while no device runs it; `Communicators.forget` then
        frees their state."""
        with self._lock:
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._ends.pop(number, None)
        if any(number == connected for connected, _ in self._connected):
            self._connected = ()
        end = clock.now() + SETTLE_S
        kept, gone = {}, list[int]()
        for key, pair in self._pairs.items():
            if self._communicators.users(("channel pair", *key)) <= {number}:
                self._await_last(pair, end)
                self._enter(pair, 0)
                gone.append(pair.number)
            else:
                kept[key] = pair
        if gone:
            removed = set(gone)
            in_use = [pair for pair in self.in_use if pair.number not in removed]
            free = [*self._free_numbers, *gone]
            self._pairs, self.in_use, self._free_numbers = kept, in_use, free

    def _host(self, device: int) -> int:
        return next(index for index, devices in enumerate(self._hosts) if device in devices)

    def _settle(self, pair: ChannelPair) -> None:
        """Reset a pair that the last call left in flight: a send or recv whose done was never executed.

        A proxy's frames about the end of a call may reach the other side a moment after it.
        """
        end = clock.now() + (SETTLE_S if pair.hosts[0] != pair.hosts[1] else 0.0)
        while not self._is_settled(pair):
            if clock.now() >= end:
                self._communicators.clear(pair.offset, channel_words.pair_bytes(pair.slot_bytes))
                return
            clock.sleep(0.0005)

    def _await_last(self, pair: ChannelPair, end: float) -> None:
        """Wait until the source's host knows that its last values were taken: later messages would belong to no pair.

        end: seconds of clock.now.
        """
        with contextlib.suppress(DistxlaError):  # the host is lost, or does not answer
            while pair.hosts[0] != pair.hosts[1] and (left := end - clock.now()) > 0:
                if self._is_settled(pair, of_source_s=left) or self._block.load(H_ABORT):
                    return
                clock.sleep(0.0005)

    def _is_settled(self, pair: ChannelPair, *, of_source_s: float | None = None) -> bool:
        """of_source_s: as the source's host sees it, which is asked for so many seconds at most."""
        words: SharedWords | CopiedWords = self._block
        if 0 not in pair.hosts or (of_source_s is not None and pair.hosts[0] != 0):  # the driver's host doesn't know it
            size = channel_words.pair_bytes(pair.slot_bytes)
            words = self._communicators.read(pair.hosts[0], pair.offset, size, of_source_s)
        sends = words.load(channel_words.C_SENDS, pair.offset)
        if sends != words.load(channel_words.C_RECVS, pair.offset):
            return False
        return all(
            words.load(channel_words.W_TAKEN, pair.offset + channel_words.slot_of(transfer, pair.slot_bytes))
            == transfer + 1
            for transfer in range(max(0, sends - channel_words.RING), sends)
        )


def _worlds(calls: Sequence[Loaded]) -> list[list[Loaded]]:
    """The programs of a call that name each other's devices: a program with an assignment names its own only."""
    common = [loaded for loaded in calls if loaded[1].assignment is None]
    alone = [[loaded] for loaded in calls if loaded[1].assignment is not None]
    return [common, *alone] if common else alone
