"""The host's ends of streams to and from one device: packed items in and out of shared memory. No shapes, no calls.

An end is beside its device: in the driver, or for a device of another host in a process there. It reaches memory
through a `StreamMemory` only.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.collectives.protocols import stream as streams
from distxla.collectives.protocols.layout import packed
from distxla.ir.unwritten import empty
from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Block
from distxla.machine.segments import Segment
from distxla.targets.registry import atomics, sleep_on, wake_all

SLICE_S = 0.05  # how long a wait keeps Python from handling signals, and from noticing that it is in vain
RECYCLED_BYTES = 64 << 10
KEPT_BYTES = 64 << 20  # in one stream
MOST_BLOCKS = 2  # items in blocks of their own that may be in flight in one stream
_MASK = 0xFFFFFFFF
SLOT_WORDS = packed(*streams.SLOT.words)

Bytes = NDArray[np.uint8]
T = TypeVar("T")


class StreamMemory(Protocol):
    """A device's memory and its host's control block, as the ends of its streams reach them. Offsets in bytes."""

    def word(self, offset: int) -> int:
        """A u32 of the control block, and with it everything that was written before it."""

    def set_word(self, offset: int, value: int) -> None:
        """Write a u32 of the control block, after everything that was written before."""

    def wait(self, offset: int, value: int, seconds: float) -> None:
        """Sleep while the u32 at `offset` of the control block is `value`, at most that long; may return early."""

    def wake(self, offset: int) -> None:
        """Wake the threads that sleep on the u32 at `offset` of the control block."""

    def read(self, offset: int, size: int) -> Bytes:
        """Bytes of the device's memory; a view where that is possible."""

    def write(self, offset: int, data: Bytes) -> None:
        """Copy bytes into the device's memory."""


class LocalStreamMemory:
    """`StreamMemory` of a device whose memory this process maps."""

    def __init__(self, control: Bytes, memory: Segment) -> None:
        """control: all of the control block; the array keeps it mapped."""
        self._control, self._atomics = control, atomics()
        self._base = int(control.ctypes.data)
        self.read = memory.read
        self.write = memory.write

    def word(self, offset: int) -> int:
        return self._atomics.read(self._base + offset)

    def set_word(self, offset: int, value: int) -> None:
        self._atomics.publish(self._base + offset, value)

    def wait(self, offset: int, value: int, seconds: float) -> None:
        sleep_on(self._base + offset, value, seconds)

    def wake(self, offset: int) -> None:
        wake_all(self._base + offset)


@dataclass(frozen=True)
class PackedItem:
    """An item's leaves as bytes, where each begins in the payload, the payload's bytes, and the type's number."""

    leaves: Sequence[Bytes]
    begins: Sequence[int]
    size: int
    type: int


@dataclass(frozen=True)
class PostedItem:
    """An item that a device has posted: the payload, and by which site of which program."""

    payload: Bytes
    program: int
    site: int


Allocate = Callable[[int], Block]
"""So many bytes of device memory, at one offset on every device; ClusterError when it is full."""

Check = Callable[[], None]
"""Called while an operation waits; raises the error that makes the wait pointless."""


class _End:
    """The common part of both kinds of ends.

    state: offset of the stream's words in the control block.  block: its slots and its area.

    Methods may be called from several threads. The lock is held while bytes are copied, never during a wait.
    """

    def __init__(self, memory: StreamMemory, state: int, block: Block) -> None:
        self._memory = memory
        self._state = state
        self._lock = threading.Lock()
        self._sleepers: set[int] = set()  # ids of threads; a count would stay wrong after an interrupt
        self.block = block
        self._place(block)

    def _place(self, block: Block) -> None:
        """Give the stream its slots and its area. An interrupt leaves it those that it has."""
        area, capacity = block.offset + streams.SLOTS_BYTES, _capacity(block)
        try:
            self._announce_place(block)
            self.block, self._area, self.capacity = block, area, capacity
        except BaseException:
            self._announce_place(self.block)
            raise

    def _announce_place(self, block: Block) -> None:
        for word, value in ((streams.T_BLOCK, block.offset), (streams.T_CAPACITY, _capacity(block))):
            self._memory.set_word(self._state + word, value & _MASK)
            self._memory.set_word(self._state + word + 4, value >> 32)

    def _word(self, word: int) -> int:
        return self._memory.word(self._state + word)

    def sleep(self, word: int, seen: int, deadline: float | None, check: Check) -> bool:
        """Wait a little for the device to change a word; False once the time is over."""
        check()
        left = SLICE_S if deadline is None else min(SLICE_S, deadline - clock.now())
        if left <= 0:
            return False
        try:
            with self._lock:
                self._sleepers.add(threading.get_ident())
                self._memory.set_word(self._state + streams.T_HOST_SLEEPS, len(self._sleepers))
            self._memory.wait(self._state + word, seen, left)
        finally:
            with self._lock:
                self._sleepers.discard(threading.get_ident())
                self._memory.set_word(self._state + streams.T_HOST_SLEEPS, len(self._sleepers))
        return True

    def slot_offset(self, number: int) -> int:
        """The offset of an item's slot in the device's memory."""
        return self.block.offset + number % streams.SLOTS * streams.SLOT_BYTES


def _capacity(block: Block) -> int:
    """Bytes of the area in a block."""
    return (block.size - streams.SLOTS_BYTES) // streams.ALIGNMENT * streams.ALIGNMENT


class _Ring:
    """A ring of the area. items: number and begin of those in it that were not taken when this was last looked at."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.write = begin
        self.items: deque[tuple[int, int]] = deque()

    def place(self, number: int, size: int, taken: int) -> int | None:
        """Where item `number` goes in the area; None if there is no room yet."""
        while self.items and self.items[0][0] < taken:
            self.items.popleft()
        first = self.items[0][1] if self.items else None
        place = streams.room(first, self.write, size, self.begin, self.end)
        if place is not None:
            self.items.append((number, place))
            self.write = place + size
        return place


class HostToDevice(_End):
    """The end of an infeed, or of a channel on which the device receives.

    posted: items put so far.  is_closed: no more are to come.
    """

    def __init__(self, memory: StreamMemory, state: int, block: Block, allocate: Allocate) -> None:
        """allocate: device memory for items that are larger than the area."""
        super().__init__(memory, state, block)
        self._allocate = allocate
        self.posted = 0
        self.is_closed = False
        self._near, self._far = _Ring(0, streams.NEAR_BYTES), _Ring(streams.NEAR_BYTES, self.capacity)
        self._blocks: deque[tuple[int, Block]] = deque()  # items in blocks of their own, by number
        # while items are renumbered: the first one's new number, and the slots that are still to be written
        self._moved: tuple[int, list[Bytes]] | None = None
        self._seen = 0  # T_TAKEN when it was looked at last; a look may go to another host
        self._idle_at = -1  # T_TAKEN when patience was lost

    @property
    def pending(self) -> int:
        """Items that were put and that the device has not taken."""
        return self.posted - self.taken

    @property
    def taken(self) -> int:
        """Items that the device has taken."""
        self._seen = self._word(streams.T_TAKEN)
        return self._taken_then()

    def _taken_then(self) -> int:
        """Items that the device had taken when T_TAKEN was looked at last."""
        return self.posted - (((2 * self.posted - self._seen) & _MASK) >> 1)

    def put(self, item: PackedItem, deadline: float | None, check: Check) -> bool:
        """Put an item as soon as there is room; False if there is none until the deadline (of clock.now)."""
        while True:
            check()
            with self._lock:
                if self._put_now(item, near_only=self._is_patient(item)):
                    return True
                self._seen = seen = self._word(streams.T_TAKEN)
                patient = self._is_patient(item)
                if self._put_now(item, near_only=patient):
                    return True
            if patient:
                end = clock.now() + streams.PATIENCE_S
                while self.sleep(streams.T_TAKEN, seen, end, check) and self._word(streams.T_TAKEN) == seen:
                    pass
                if self._word(streams.T_TAKEN) == seen:
                    self._idle_at = seen
            elif not self.sleep(streams.T_TAKEN, seen, deadline, check):
                return False

    def _is_patient(self, item: PackedItem) -> bool:
        """Whether the item should go into the near ring rather than at once."""
        return self._seen != self._idle_at and item.size <= streams.NEAR_BYTES

    def _put_now(self, item: PackedItem, near_only: bool) -> bool:
        """Put the item if there is room."""
        place, block = self._room(item.size, near_only)
        if place is None:
            return False
        for leaf, begin in zip(item.leaves, item.begins, strict=True):
            self._memory.write(place + begin, leaf)
        slot = SLOT_WORDS.pack(place, item.size, item.type, 0, 0, 0)
        self._memory.write(self.slot_offset(self.posted), np.frombuffer(slot, np.uint8))
        if block is not None:
            self._blocks.append((self.posted, block))
        self.posted += 1
        self._announce()
        return True

    def close(self, closed: bool = True) -> None:
        """No more items: a reader beyond the last one gets an error. closed: False takes that back."""
        with self._lock:
            self.is_closed = closed
            self._announce()

    def _announce(self) -> None:
        try:
            self._memory.set_word(self._state + streams.T_POSTED, (2 * self.posted + self.is_closed) & _MASK)
        finally:  # a Ctrl-C in between must not leave the device asleep
            self._memory.wake(self._state + streams.T_POSTED)

    def _room(self, size: int, near_only: bool) -> tuple[int | None, Block | None]:
        """Where an item of `size` bytes can go in the device's memory, None if nowhere yet; and the block for it."""
        taken, number = self._taken_then(), self.posted
        if number - taken >= streams.SLOTS:
            return None, None
        if size > self._far.end - self._far.begin:
            taken = self.taken
            while self._blocks and self._blocks[0][0] < taken:
                self._blocks.popleft()
            if len(self._blocks) >= MOST_BLOCKS:
                return None, None
            block = self._allocate(size)
            return block.offset, block
        place = self._near.place(number, size, taken)
        if place is None and not near_only:
            place = self._far.place(number, size, taken)
        return (None if place is None else self._area + place), None

    def settle(self) -> None:
        """No program runs on the device: forget which items it has asked for and not taken.

        Items that it took out of order are removed, so that the numbers of the others begin at `taken`.
        """
        with self._lock:
            taken = self.taken
            if self._moved or self._word(streams.T_ISSUED) != self._word(streams.T_TAKEN):
                self._renumber(taken)

    def _renumber(self, taken: int) -> None:
        """With the lock. What an interrupt leaves undone, the next call does."""
        if not self._moved:
            self._plan_moves(taken)
        assert self._moved is not None
        first, slots = self._moved
        for number, slot in enumerate(slots, first):
            self._memory.write(self.slot_offset(number), slot)
        self._memory.set_word(self._state + streams.T_TAKEN, 2 * first & _MASK)
        self._memory.set_word(self._state + streams.T_ISSUED, 2 * first & _MASK)
        self._moved = None

    def _plan_moves(self, taken: int) -> None:
        kept = []
        for number in range(taken, self.posted):
            slot = self._memory.read(self.slot_offset(number), streams.SLOT_BYTES).copy()
            if not SLOT_WORDS.unpack_from(bytes(slot))[-1]:
                kept.append((number, slot))
        first = self.posted - len(kept)
        renamed = {old: number for number, (old, _) in enumerate(kept, first)}
        near, far = (
            deque((renamed[old], begin) for old, begin in ring.items if old in renamed)
            for ring in (self._near, self._far)
        )
        blocks = deque((renamed[old], block) for old, block in self._blocks if old in renamed)
        moved = first, [slot for _, slot in kept]
        self._near.items, self._far.items, self._blocks, self._moved = near, far, blocks, moved

    def discard(self) -> None:
        """No program runs on the device: forget the items that it has not taken."""
        with self._lock:
            for ring in (self._near, self._far):
                ring.items.clear()
            self._blocks.clear()
            self._moved = None
            self._memory.set_word(self._state + streams.T_TAKEN, 2 * self.posted & _MASK)
            self._memory.set_word(self._state + streams.T_ISSUED, 2 * self.posted & _MASK)


class _Buffers:
    """Memory for items that are handed out, used again once it has no reader: fresh pages cost more than the copy."""

    def __init__(self) -> None:
        self._kept: list[Bytes] = []

    def take(self, size: int) -> Bytes:
        """An array of `size` bytes of any content."""
        if size < RECYCLED_BYTES:
            return empty([size], np.uint8)
        for i in range(len(self._kept)):
            # arrays over a buffer hold a reference to it; without any there are the list's and the argument's
            if size <= self._kept[i].size <= 2 * size and sys.getrefcount(self._kept[i]) == 2:
                return self._kept[i][:size]
        buffer = empty([size], np.uint8)
        self._kept.append(buffer)
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept) > KEPT_BYTES:
            del self._kept[0]
        return buffer[:]


class DeviceToHost(_End):
    """The end of an outfeed, or of a channel on which the device sends. taken: items that the host has taken."""

    def __init__(self, memory: StreamMemory, state: int, block: Block) -> None:
        super().__init__(memory, state, block)
        self.taken = 0
        self._seen = 0  # T_POSTED when it was looked at last; a look may go to another host
        self._buffers = _Buffers()
        self._kept: tuple[PostedItem, ...] = ()  # taken out of the area, and not given yet

    @property
    def pending(self) -> int:
        """Items that the device has posted and that are not taken yet."""
        return len(self._kept) + (((self._word(streams.T_POSTED) - 2 * self.taken) & _MASK) >> 1)

    @property
    def posted(self) -> int:
        """Items that the device has posted, modulo 2^31."""
        return self._word(streams.T_POSTED) >> 1

    def get(self, deadline: float | None, check: Check, unpack: Callable[[PostedItem], T]) -> T | None:
        """The next item, as `unpack` gives it; None if there is none until the deadline (of clock.now).

        The exception of a signal handler amid this takes no item: the next call gives it.
        """
        given: tuple[PostedItem, ...] = ()
        try:
            while True:
                with self._lock:
                    seen = self._look()
                    if self._kept:
                        self._announce()  # also of items that an earlier call took, where an interrupt came before this
                        found = unpack(self._kept[0])
                        given, self._kept = self._kept[:1], self._kept[1:]  # calls nothing: no handler runs within
                        return found
                if not self.sleep(streams.T_POSTED, seen, deadline, check):
                    return None
        except BaseException:
            with self._lock:
                self._kept = given + self._kept
            raise

    def _look(self) -> int:
        """Have an item in `_kept` if the device has posted one; T_POSTED as it was seen. With the lock."""
        if not self._kept:
            if self._seen == 2 * self.taken & _MASK:
                self._seen = self._word(streams.T_POSTED)
            if self._seen != 2 * self.taken & _MASK:
                self._take()
        return self._seen

    def _take(self) -> None:
        """Into `_kept`."""
        raw = self._memory.read(self.slot_offset(self.taken), streams.SLOT_BYTES)
        place, size, _, program, site, _ = SLOT_WORDS.unpack_from(bytes(raw))
        payload = self._buffers.take(size)
        payload[:] = self._memory.read(place, size)
        found, taken = (*self._kept, PostedItem(payload, program, site)), self.taken + 1
        self._kept, self.taken = found, taken

    def _announce(self) -> None:
        try:
            self._memory.set_word(self._state + streams.T_TAKEN, 2 * self.taken & _MASK)
        finally:
            self._memory.wake(self._state + streams.T_TAKEN)

    def move(self, block: Block) -> None:
        """No program runs on the device: use another block from now on."""
        with self._lock:
            self._seen = self._word(streams.T_POSTED)
            self._take_all()
            self._announce()
            self._place(block)

    def _take_all(self) -> None:
        while self._seen != 2 * self.taken & _MASK:
            self._take()
