"""Streams between host and devices as users see them: infeeds, outfeeds, and the channels of host transfers.

An item is an array, or a tuple of items, in NumPy; logical arrays, whatever layout the program's text states. It is put
whole, in order, into memory that host and device share (collectives/protocols/stream.py), and stays there for
whichever call takes it: a stream belongs to its device and outlives calls, failed ones included.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import stream as streams
from distxla.errors import ArgumentError, ClusterError, DistxlaError, ExecutionError, StreamEndError, TimeLimitError
from distxla.ir.shape import Shape
from distxla.ir.stream_key import INFEED, OUTFEED, StreamKey, StreamKind
from distxla.machine.heap import Block
from distxla.program.abi import Status
from distxla.program.artifact import CompiledProgram, Site
from distxla.runtime.streams.stream_ends import (
    SLICE_S,
    Allocate,
    Check,
    DeviceToHost,
    HostToDevice,
    PostedItem,
    StreamMemory,
)
from distxla.runtime.streams.stream_items import pack, unpack
from distxla.runtime.values.handle import Handle
from distxla.runtime.values.host import Records
from distxla.runtime.values.shared_image import without_image

_FAILURES = (Status.STREAM_ENDED, Status.ITEM_REFUSED)
KNOWN_SHAPES = 2 * streams.SLOTS  # of the items put last; more than can wait in a stream


class _Stream(Handle):
    """The host's end of a stream."""

    def __init__(self, owner: ClusterStreams, device: int, key: StreamKey, end: HostToDevice | DeviceToHost) -> None:
        self._owner = owner
        self._end = end
        self.device = device
        self.key = key

    def __str__(self) -> str:
        return f"{self.key} of device {self.device}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self}: {self._owner.state(self)})"

    @property
    def pending(self) -> int:
        """Items that were put and not taken yet."""
        return self._end.pending


class Infeed(_Stream):
    """The input of a device: its infeed, or a channel on which it receives from the host. Made by a cluster.

    Items are numbered from 0 over the cluster's life. Threads may share it.
    """

    _end: HostToDevice

    def __init__(self, owner: ClusterStreams, device: int, key: StreamKey, end: HostToDevice) -> None:
        super().__init__(owner, device, key, end)
        self._lock = threading.Lock()
        self._ended = False  # a program has met the end: items may be put again
        self._shapes: deque[tuple[int, Shape]] = deque(maxlen=KNOWN_SHAPES)
        self._cut: int | None = None
        self.was_cut = False

    def put(self, value: Any, timeout: float | None = None) -> None:
        """Put an item: anything np.asarray takes, or a tuple or list of items. Blocks while the stream is full.

        Python numbers are s64, f64, c128 and pred. A tuple of one item counts as that item, and the tuple of all
        leaves as the nested one; whether the item has the type that the program takes is known when it is taken.

        timeout: seconds.  TimeLimitError when they are over, StreamEndError after `close` until a program has met the
        end, ReplicaLostError, ClusterError; ExecutionError when a call of the device fails in that time. Then the item
        was not put.
        """
        item, shape = pack(value)
        deadline = None if timeout is None else clock.now() + timeout
        check = self._owner.check(self.device, self)
        while not self._lock.acquire(timeout=_slice(deadline)):
            check()
            if deadline is not None and clock.now() >= deadline:
                raise self._full(timeout)
        try:
            check()
            if self._is_cut():
                return
            if self._end.is_closed:
                if not self._ended:
                    raise StreamEndError(f"{self} was closed after {self.posted} items")
                self._ended = False
                self._cut = None if self.was_cut else self._cut
                self._end.close(False)
            if self._shapes and self._shapes[-1][0] == self.posted:
                self._shapes.pop()  # of an attempt that found no room
            self._shapes.append((self.posted, shape))
            if not self._end.put(item, deadline, check):
                raise self._full(timeout)
            self._is_cut()
        finally:
            self._lock.release()

    def put_all(self, values: Iterable[Any], timeout: float | None = None) -> int:
        """Put all items of an iterable, which is asked for each when there may be room for it; how many there were.

        timeout: seconds for each item.  Raises the errors of `put` and of the iterable.
        """
        count = 0
        for value in values:
            self.put(value, timeout)
            count += 1
        return count

    def close(self) -> None:
        """No more items are to come: a program that wants one more fails with StreamEndError, now or later.

        Items that were put are still taken. Waits for a `put` of another thread.
        """
        check = self._owner.check(self.device, self)
        while not self._lock.acquire(timeout=SLICE_S):
            check()
        try:
            check()
            self._end.close()
        finally:
            self._lock.release()

    def _full(self, timeout: float | None) -> TimeLimitError:
        return TimeLimitError(f"{self} had no room for item {self.posted} within {timeout:g} s: {self.pending} wait")

    # --- for the owner

    _INTERNAL = frozenset({"cut_after", "discard", "failure", "posted", "settle", "was_cut"})

    @property
    def posted(self) -> int:
        """Items that were put: the number of the next one."""
        return self._end.posted

    def cut_after(self, items: int) -> None:
        """Injected fault: end the stream after `items` items. Later items are lost until a program reaches the end."""
        self._cut = items
        self._is_cut()

    def _is_cut(self) -> bool:
        if self._cut is None or self.posted < self._cut or self._ended:
            return False
        self.was_cut = True
        self._end.close()
        return True

    def settle(self) -> None:
        self._end.settle()

    def discard(self) -> None:
        """No program runs on the device: forget the items that it has not taken."""
        self._end.discard()

    def failure(self, status: int, site: Site, number: int) -> DistxlaError:
        """Why an instruction did not get an item. number: the item's, modulo 2^31."""
        posted = self.posted
        where = f"{site.instruction} on device {self.device}"
        if status == Status.STREAM_ENDED:
            self._ended = True
            number = posted + (number - posted) % (1 << 31)
            were = f"the {self.key} was closed after {posted} item{'' if posted == 1 else 's'}"
            return StreamEndError(f"{where} wants item {number}: {were}", site.location)
        number = posted - 1 - (posted - 1 - number) % (1 << 31)
        found = next((str(shape) for n, shape in self._shapes if n == number), "another type")
        assert site.item is not None
        expected = site.item.without_layout()
        return ArgumentError(
            f"{where}: item {number} of the {self.key}: expected {expected}, found {found}", site.location
        )


class Outfeed(_Stream):
    """The output of a device: its outfeed, or a channel on which it sends to the host. Made by a cluster.

    Threads may share it.
    """

    _end: DeviceToHost

    def get(self, timeout: float | None = None) -> Any:
        """The next item, nested in tuples as the program's text says; arrays of its own. Blocks until there is one.

        timeout: seconds.  TimeLimitError when they are over; ReplicaLostError, ClusterError, ExecutionError as
        `Infeed.put`. All of them only where no item is there. After Ctrl-C, or what another signal's handler
        raises meanwhile, the next `get` gives the item.
        """
        deadline = None if timeout is None else clock.now() + timeout
        item = self._end.get(deadline, self._owner.check(self.device, self), self._owner.unpack)
        if item is None:
            raise TimeLimitError(f"{self} had no item within {timeout:g} s")
        return item

    def __iter__(self) -> Iterator[Any]:
        """All items that are there; while a call runs on the device, also those to come. Begin it after the call has
        begun, or use `get`, which waits for a call, too."""
        while True:
            running = self._owner.runs(self.device)
            deadline, check = clock.now() + SLICE_S if running else 0.0, self._owner.check(self.device, self)
            item = self._end.get(deadline, check, self._owner.unpack)
            if item is not None:
                yield item
            elif not running:
                return

    # --- for the owner

    _INTERNAL = frozenset({"holds", "move", "posted"})

    @property
    def posted(self) -> int:
        """Items that the device has posted, modulo 2^31."""
        return self._end.posted

    def holds(self, size: int) -> bool:
        """Whether the area has room for two items of `size` bytes."""
        return 2 * size <= self._end.capacity - streams.NEAR_BYTES

    def move(self, block: Block) -> None:
        self._end.move(block)


class HostChannel(Handle):
    """The host's side of a channel of one device: `put` for its recvs, `get` for its sends (is_host_transfer)."""

    def __init__(self, owner: ClusterStreams, device: int, channel: int) -> None:
        self._owner = owner
        self.device = device
        self.channel = channel

    def __repr__(self) -> str:
        return f"HostChannel(channel {self.channel} of device {self.device})"

    def _to_device(self) -> Infeed:
        return self._owner.infeed(self.device, self.channel)

    def _from_device(self) -> Outfeed:
        return self._owner.outfeed(self.device, self.channel)

    def put(self, value: Any, timeout: float | None = None) -> None:
        """See Infeed.put."""
        self._to_device().put(value, timeout)

    def put_all(self, values: Iterable[Any], timeout: float | None = None) -> int:
        """See Infeed.put_all."""
        return self._to_device().put_all(values, timeout)

    def close(self) -> None:
        """See Infeed.close."""
        self._to_device().close()

    def get(self, timeout: float | None = None) -> Any:
        """See Outfeed.get."""
        return self._from_device().get(timeout)

    def __iter__(self) -> Iterator[Any]:
        """See Outfeed.__iter__."""
        return iter(self._from_device())


class ClusterStreams:
    """All streams of a cluster's devices. State: made when a stream is first asked for; they live as long as the
    cluster.
    ends: by device, the number of items after which its infeed ends (an injected fault); set before its first use.

    new_state: zeroed STATE_BYTES of the control block for a stream of a device, by their offset.  memory: by device.
    lost: why no call can be made any more, if so.
    """

    def __init__(
        self,
        new_state: Callable[[int, StreamKey], int],
        allocate: Allocate,
        memory: Callable[[int], StreamMemory],
        lost: Callable[[], DistxlaError | None],
    ) -> None:
        self._new_state = new_state
        self._allocate = allocate
        self._memory = memory
        self._lost = lost
        self._lock = threading.Lock()
        self._closed = False
        self._blocks: dict[StreamKey, Block] = {}
        self._states: dict[tuple[int, StreamKey], int] = {}
        self._infeeds: dict[tuple[int, StreamKey], Infeed] = {}
        self._outfeeds: dict[tuple[int, StreamKey], Outfeed] = {}
        self._programs: dict[int, CompiledProgram] = {}
        self._calls: dict[object, frozenset[int]] = {}  # the devices of each call in flight
        self._failures: dict[int, tuple[int, str]] = {}  # by device: how many calls have failed, and how the last one
        self.ends: dict[int, int] = {}

    # --- streams

    def infeed(self, device: int, channel: int | None = None) -> Infeed:
        """The device's infeed, or the end of a channel on which it receives."""
        key = INFEED if channel is None else StreamKey(StreamKind.RECV, channel)
        self._make(device, key)
        return self._infeeds[device, key]

    def outfeed(self, device: int, channel: int | None = None) -> Outfeed:
        """The device's outfeed, or the end of a channel on which it sends."""
        key = OUTFEED if channel is None else StreamKey(StreamKind.SEND, channel)
        self._make(device, key)
        return self._outfeeds[device, key]

    def channel(self, device: int, channel: int) -> HostChannel:
        return HostChannel(self, device, channel)

    def place(self, device: int, key: StreamKey) -> int:
        """The offset of the stream's state in the control block."""
        return self._make(device, key)

    def _make(self, device: int, key: StreamKey) -> int:
        with self._lock:
            if self._closed:
                raise ClusterError("the cluster is closed")
            if (device, key) not in self._states:
                state, memory = self._new_state(device, key), self._memory(device)
                block = self._area(key, streams.AREA_BYTES)
                if key.kind.leads_to_device:
                    to_device = HostToDevice(memory, state, block, self._allocate)
                    self._infeeds[device, key] = infeed = Infeed(self, device, key, to_device)
                    if key == INFEED and device in self.ends:
                        infeed.cut_after(self.ends[device])
                else:
                    self._outfeeds[device, key] = Outfeed(self, device, key, DeviceToHost(memory, state, block))
                self._states[device, key] = state
            return self._states[device, key]

    def _area(self, key: StreamKey, capacity: int) -> Block:
        """The block of a stream, on all devices at the same offset, whose area has at least `capacity` bytes."""
        block = self._blocks.get(key)
        if block is None or block.size < streams.SLOTS_BYTES + capacity:
            block = self._blocks[key] = self._allocate(streams.SLOTS_BYTES + capacity)
        return block

    # --- calls

    def load(self, number: int, program: CompiledProgram, devices: Collection[int]) -> None:
        """A program was given its number: make room for the largest item of each of its streams; no device runs."""
        self._programs[number] = program
        for site in program.sites:
            key = program.communicators[site.communicator].stream if site.item is not None else None
            if key is None or site.item is None or key.kind.leads_to_device:
                continue
            _, size = streams.places(site.item)
            for device in devices:
                self._make(device, key)
                outfeed = self._outfeeds[device, key]
                if not outfeed.holds(size):
                    outfeed.move(self._area(key, streams.NEAR_BYTES + 2 * size))

    def holds(self, number: int) -> bool:
        """Whether items that the program with this number has put out may still be unread."""
        program = self._programs.get(number)
        keys = {spec.stream for spec in program.communicators} if program is not None else set()
        return any(key in keys and outfeed.pending for (_, key), outfeed in self._outfeeds.items())

    def forget(self, number: int) -> None:
        """A program was unloaded. The shapes of its output stay known until its number is reused."""
        program = self._programs.get(number)
        if program is not None and any(site.item is not None for site in program.sites):
            self._programs[number] = without_image(program)
        else:
            self._programs.pop(number, None)

    @contextmanager
    def call(self, devices: Collection[int]) -> Iterator[None]:
        """A call on these devices. If it fails, threads that wait at a stream of theirs then get an error."""
        for (device, key), infeed in list(self._infeeds.items()):
            if key.kind is StreamKind.RECV and device in devices:
                infeed.settle()
        call, running = object(), frozenset(devices)
        self._calls[call] = running
        try:
            yield
        except BaseException as error:
            text = error.message if isinstance(error, DistxlaError) else type(error).__name__
            for device in running:
                count, _ = self._failures.get(device, (0, ""))
                self._failures[device] = (count + 1, text)
            raise
        finally:
            self._calls.pop(call, None)

    def state(self, stream: _Stream) -> str:
        """The state of a stream, for people."""
        if self._closed:
            return "the cluster is closed"
        return f"{stream.pending} item{'' if stream.pending == 1 else 's'} waiting"

    def was_cut(self, device: int) -> bool:
        """Whether the device's infeed was ended by an injected fault."""
        infeed = self._infeeds.get((device, INFEED))
        return infeed is not None and infeed.was_cut

    def runs(self, device: int) -> bool:
        """Whether a call is in flight on the device."""
        return any(device in running for running in list(self._calls.values()))

    def failure(self, device: int, status: int, records: Records) -> DistxlaError:
        """The error of a device whose program has returned STREAM_ENDED or ITEM_REFUSED; those of other devices of the
        call as its notes."""
        error = self._failure_of(device, status, records)
        running = next((running for running in list(self._calls.values()) if device in running), frozenset[int]())
        for other in sorted(running - {device}):
            if (theirs := records.record(other, control_words.R_STATUS)) in _FAILURES:
                error.add_note(f"also {self._failure_of(other, theirs, records).message}")
        return error

    def note_ends(self, devices: Iterable[int], records: Records) -> None:
        """Where one of the devices has met the end of a stream, items may be put there again."""
        for device in devices:
            if (status := records.record(device, control_words.R_STATUS)) in _FAILURES:
                self._failure_of(device, status, records)

    def _failure_of(self, device: int, status: int, records: Records) -> DistxlaError:
        site, key = self._site(device, records)
        return self._infeeds[device, key].failure(status, site, records.record_long(device, control_words.R_ROUND))

    def _site(self, device: int, records: Records) -> tuple[Site, StreamKey]:
        """Where the device is, and the stream there."""
        program = self._programs[records.record(device, control_words.R_PROGRAM)]
        site = program.sites[records.record(device, control_words.R_SITE)]
        key = program.communicators[site.communicator].stream
        assert key is not None
        return site, key

    def check(self, device: int, stream: _Stream) -> Check:
        """Called by an operation at a stream of a device while it waits: raises once the wait is pointless."""
        before = self._failures.get(device, (0, ""))

        def check() -> None:
            if self._closed:
                raise ClusterError(f"the cluster is closed: {stream} has ended")
            error = self._lost()
            if error is not None:
                raise error
            now = self._failures.get(device, (0, ""))
            if now[0] != before[0]:
                raise ExecutionError(f"{stream}: the call that ran on the device has failed: {now[1]}")

        return check

    def unpack(self, posted: PostedItem) -> Any:
        """An item as NumPy arrays in tuples."""
        item = self._programs[posted.program].sites[posted.site].item
        assert item is not None
        return unpack(posted, item)

    def close(self) -> None:
        """The cluster is being closed: end all waits. Memory may be given back when this returns."""
        with self._lock:
            self._closed = True


def _slice(deadline: float | None) -> float:
    return SLICE_S if deadline is None else max(0.0, min(SLICE_S, deadline - clock.now()))


__all__ = ["ClusterStreams", "HostChannel", "Infeed", "Outfeed"]
