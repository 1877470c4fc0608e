"""The allocator of the driver, for device memories and control blocks.

One heap serves all devices: a block has the same offset in every device's memory. Pages that a device never touches
cost it nothing. The memory that all devices of a host have in common has a heap of its own.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from distxla.errors import OutOfMemoryError
from distxla.machine.pages import PAGE

ALIGNMENT = 64  # of blocks; a compiled program relies on it
KEPT_IDLE_BYTES = 256 << 20  # freed memory that stays in place to be used again
UNCHECKED_BYTES = 16 << 20  # by which all devices' memories may grow before the host's free memory is checked again
PUNCHED_BYTES = 1 << 20  # smaller ranges are not worth a system call


class Pages(Protocol):
    """Memory that can be given back to the system."""

    def punch(self, offset: int, size: int) -> None:
        """Give the pages of a page-aligned range back; they read as zero afterwards."""


class Headroom(Protocol):
    """The memory that a host has left for its devices' memories."""

    def count(self, devices: Sequence[int]) -> int:
        """How many of these devices live on the host; of none 1."""

    def resident(self) -> int:
        """Bytes that all the memories hold."""

    def require(self, promised: int, growth: int, devices: Sequence[int]) -> None:
        """OutOfMemoryError if the host can't hold `promised` bytes in all the memories. growth: bytes by which the
        memories of `devices` are to grow, for the message."""


@dataclass(frozen=True)
class HeapUse:
    """Use of each device's memory, in bytes.

    used: in use.  peak: the most that ever was.  blocks: how many were allocated so far.  largest: the largest of them.
    largest_free: the largest block that there is place for.
    """

    used: int
    peak: int
    blocks: int
    largest: int
    largest_free: int


class Block:
    """Bytes at one offset of every device's memory, or of the control block; freed with its last reference."""

    __slots__ = ("_heap", "offset", "size")

    def __init__(self, heap: Heap, offset: int, size: int) -> None:
        self._heap = heap
        self.offset = offset
        self.size = size

    def free(self) -> None:
        """Free it now, before its last reference goes. May be called twice."""
        if self.size:
            self._heap.free_later(self.offset, self.size)
            self.size = 0

    def __del__(self) -> None:
        self.free()


class Heap:
    """First-fit allocator over [begin, begin + size). Thread-safe; freeing may happen inside the garbage collector.

    begin: where the segments begin in a device's memory, page-aligned.

    Freed ranges are used again as they are; once more than KEPT_IDLE_BYTES and more than is in use are idle, ranges of
    at least PUNCHED_BYTES are given back to the system.

    headroom: checked before the part of the memories that may have pages grows, since a process that touches a page
    that the kernel can't provide is killed. None for a small heap.
    reclaim: frees blocks that are kept to be used again where there is no memory for another one; whether it has.
    """

    reclaim: Callable[[], bool] | None = None

    def __init__(self, size: int, segments: Sequence[Pages], begin: int = 0, headroom: Headroom | None = None) -> None:
        self._segments = segments
        self._headroom = headroom
        # ranges given back and not allocated since; beyond _high nothing ever was
        self._holes: list[tuple[int, int]] = []
        # bytes on the host that have pages or may get them; bytes that the headroom has allowed
        self._promised = self._checked = 0
        self._in_use: dict[int, int] = {}  # by offset of a block its bytes on the host, touched or not
        self._in_use_bytes = 0  # their sum
        self._of_runtime: dict[int, int] = {}  # by offset the bytes of blocks that hold no values of the user
        self.size = size
        self._begin = begin
        self._lock = threading.Lock()
        self._freed: deque[tuple[int, int]] = deque()
        self._starts = [begin]
        self._ends = [begin + size]
        self._high = begin  # nothing beyond was ever in use
        self._used = self._peak = 0
        self._blocks = self._largest = 0
        self._idle = 0  # freed bytes that were not given back since

    @property
    def used(self) -> int:
        """Bytes in use, of each device's memory."""
        with self._lock:
            self._settle()
            return self._used

    def use(self) -> HeapUse:
        """How it is used, and was since the last `forget_use`."""
        with self._lock:
            self._settle()
            free = max((end - start for start, end in zip(self._starts, self._ends, strict=True)), default=0)
            return HeapUse(self._used, self._peak, self._blocks, self._largest, free)

    def forget_use(self) -> None:
        """Count blocks, and what was the most, from now on."""
        with self._lock:
            self._settle()
            self._peak, self._blocks, self._largest = self._used, 0, 0

    @property
    def value_bytes(self) -> int:
        """Bytes in use, of each device's memory, for arguments, results and views of them."""
        with self._lock:
            self._settle()
            return self._used - sum(self._of_runtime.values())

    @property
    def value_offsets(self) -> frozenset[int]:
        """Where the blocks of `value_bytes` begin, if the heap has a headroom."""
        with self._lock:
            self._settle()
            return frozenset(self._in_use.keys() - self._of_runtime.keys())

    def allocate(self, size: int, devices: Sequence[int] = (), *, of_runtime: bool = False) -> Block:
        """A block of at least `size` bytes; page-aligned from one page on. OutOfMemoryError when it is full, or
        when the host has no memory for it.

        devices: that will touch it; by default one.  of_runtime: not for a value of the user's.
        """
        try:
            return self._allocate(size, devices, of_runtime)
        except OutOfMemoryError:
            if self.reclaim is None or not self.reclaim():
                raise
        return self._allocate(size, devices, of_runtime)

    def _allocate(self, size: int, devices: Sequence[int], of_runtime: bool) -> Block:
        alignment = PAGE if size >= PAGE else ALIGNMENT
        size = max(alignment, (size + alignment - 1) // alignment * alignment)
        with self._lock:
            self._settle()
            for i, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
                offset = (start + alignment - 1) // alignment * alignment
                if offset + size <= end:
                    if self._headroom is not None:
                        self._promise(self._headroom, offset, offset + size, devices)
                    self._cut(i, offset, offset + size)
                    self._used += size
                    self._peak = max(self._peak, self._used)
                    self._blocks += 1
                    self._largest = max(self._largest, size)
                    self._idle -= max(0, min(offset + size, self._high) - offset)
                    self._idle = max(0, self._idle)
                    self._high = max(self._high, offset + size)
                    if of_runtime:
                        self._of_runtime[offset] = size
                    return Block(self, offset, size)
        raise OutOfMemoryError(f"device memory is full: {size} bytes wanted, {self._used} of each device's are in use")

    def free_later(self, offset: int, size: int) -> None:
        """Called by Block; takes no lock, since a garbage collection may run it inside `allocate`."""
        self._freed.append((offset, size))

    def _promise(self, headroom: Headroom, begin: int, end: int, devices: Sequence[int]) -> None:
        """Check the headroom for a block from `begin` to `end`, on each of the devices."""
        count = headroom.count(devices)
        promised = self._promised_with(begin, end, count)
        if promised - self._checked > UNCHECKED_BYTES:
            try:
                self._require(headroom, promised, count, devices)
            except OutOfMemoryError:
                if self._idle < PUNCHED_BYTES:
                    raise
                self._give_back()
                promised = self._promised_with(begin, end, count)  # a part of the block may be given back
                self._require(headroom, promised, count, devices)
            self._checked = promised
        self._promised = promised
        self._in_use[begin] = (end - begin) * count
        self._in_use_bytes += (end - begin) * count
        left = [piece for a, b in self._holes for piece in ((a, min(b, begin)), (max(a, end), b))]
        self._holes = [(a, b) for a, b in left if a < b]

    def _promised_with(self, begin: int, end: int, count: int) -> int:
        """`_promised`, with a block on `count` devices: they may touch pages there that others never did."""
        grown = self._promised + self._unpromised(begin, end) * count
        return max(grown, self._in_use_bytes + (end - begin) * count)

    def _require(self, headroom: Headroom, promised: int, count: int, devices: Sequence[int]) -> None:
        headroom.require(promised, (promised - self._promised) // max(1, count), devices)

    def _unpromised(self, begin: int, end: int) -> int:
        """Bytes of a range that have no pages."""
        inside = sum(max(0, min(end, b) - max(begin, a)) for a, b in self._holes)
        return inside + max(0, end - max(begin, self._high))

    def _cut(self, i: int, begin: int, end: int) -> None:
        start, stop = self._starts[i], self._ends[i]
        pieces = [(a, b) for a, b in ((start, begin), (end, stop)) if a < b]
        self._starts[i : i + 1] = [a for a, _ in pieces]
        self._ends[i : i + 1] = [b for _, b in pieces]

    def _settle(self) -> None:
        """Take freed blocks back, joining neighbours; give memory back where too much is idle."""
        while self._freed:
            offset, size = self._freed.popleft()
            self._used -= size
            self._idle += size
            self._in_use_bytes -= self._in_use.pop(offset, 0)
            self._of_runtime.pop(offset, None)
            i = bisect.bisect_left(self._starts, offset)
            self._starts.insert(i, offset)
            self._ends.insert(i, offset + size)
            if i + 1 < len(self._starts) and self._ends[i] == self._starts[i + 1]:
                self._ends[i] = self._ends.pop(i + 1)
                del self._starts[i + 1]
            if i > 0 and self._ends[i - 1] == self._starts[i]:
                self._ends[i - 1] = self._ends.pop(i)
                del self._starts[i]
        if self._idle > max(KEPT_IDLE_BYTES, self._used):
            self._give_back()

    def _give_back(self) -> None:
        self._holes = []
        for start, end in zip(self._starts, self._ends, strict=True):
            begin = (start + PAGE - 1) // PAGE * PAGE
            stop = min(end, self._high) // PAGE * PAGE
            if stop - begin >= PUNCHED_BYTES:
                self._holes.append((begin, stop))
                for segment in self._segments:
                    segment.punch(begin - self._begin, stop - begin)
        self._idle = 0
        if self._headroom is not None:  # blocks in use may get the pages that they do not have yet
            self._promised = self._checked = max(self._headroom.resident(), self._in_use_bytes)
