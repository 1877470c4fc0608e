"""The allocator of the driver, for device memories and control blocks.

One heap serves all devices: a block has the same offset in every device's memory. Pages that a device never touches
cost it nothing. The memory that all devices of a host have in common has a heap of its own.

A signal handler may raise at any line here. So each change is computed first, and then made by one assignment to
several places that calls nothing: Python runs handlers after calls and iterations only. A block is freed by the
callback of a weak reference, its claim, which is C code: an interrupt in a `__del__` would lose the block.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from distxla.errors import InternalError, OutOfMemoryError
from distxla.lazy_dataclass import dataclass
from distxla.machine.mappings import PAGE

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
        """Bytes that the memories hold; where several processes have heaps in them, this heap's part."""

    def require(self, promised: int, growth: int, devices: Sequence[int]) -> None:
        """OutOfMemoryError if the host can't hold `promised` bytes in all the memories. growth: bytes by which the
        memories of `devices` are to grow, for the message."""

    def promise(self, promised: int) -> None:
        """The heap has given memory back, and promises so many bytes from now on."""


@dataclass(frozen=True)
class HeapUse:
    """Use of each device's memory, in bytes.

    used: in use.  Since the last `forget_use`: peak, the most in use; blocks, how many were allocated; largest, the
    largest of them.  largest_free: the largest block that there is place for.
    """

    used: int
    peak: int
    blocks: int
    largest: int
    largest_free: int


class Block:
    """Bytes at one offset of every device's memory, or of the control block; freed with its last reference."""

    __slots__ = ("__weakref__", "_claim", "_freed", "offset", "size")

    def __init__(self, freed: deque[weakref.ref[Block]], offset: int, size: int) -> None:
        """freed: of the heap; gets the block's claim once the block is free."""
        self._freed = freed
        self.offset = offset
        self.size = size
        self._claim = weakref.ref(self, freed.append)

    def free(self) -> None:
        """Free it now, before its last reference goes. May be called twice."""
        self._freed.append(self._claim)


_Use = tuple[weakref.ref[Block], int, int, int, bool]
"""A block in use: its claim, kept here since a weak reference that is gone calls nothing; its offset; its size; its
bytes on the host, touched or not; and whether it holds no values of the user."""


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
        self.size = size
        self._begin = begin
        self._lock = threading.Lock()
        self._freed: deque[weakref.ref[Block]] = deque()  # claims, also of blocks that were never in use
        self._bounds = [begin, begin + size]  # of free ranges: begin, end, begin, end, ... in rising order
        self._in_use: dict[int, _Use | None] = {}  # by the claim's id; None where it was freed a moment ago
        self._high = begin  # nothing beyond was ever in use
        self._used = 0
        self._most = 0, 0, 0  # of HeapUse: peak, blocks, largest
        self._idle = 0  # freed bytes that were not given back since
        # with a headroom: bytes on the host that have pages or may get them; the sum of those of blocks in use; ranges
        # given back and not allocated since
        self._hosted: tuple[int, int, list[tuple[int, int]]] = 0, 0, []
        self._checked = 0  # bytes on the host that the headroom has allowed

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
            bounds = iter(self._bounds)
            free = max((end - start for start, end in zip(bounds, bounds, strict=True)), default=0)
            return HeapUse(self._used, *self._most, free)

    def forget_use(self) -> None:
        """Count blocks and the peak anew, from now on."""
        with self._lock:
            self._settle()
            self._most = self._used, 0, 0

    @property
    def value_bytes(self) -> int:
        """Bytes in use, of each device's memory, for arguments, results and views of them."""
        with self._lock:
            self._settle()
            return sum(size for _, _, size, _, of_runtime in self._uses() if not of_runtime)

    @property
    def value_offsets(self) -> frozenset[int]:
        """Where the blocks of `value_bytes` begin."""
        with self._lock:
            self._settle()
            return frozenset(offset for _, offset, _, _, of_runtime in self._uses() if not of_runtime)

    def _uses(self) -> list[_Use]:
        return [use for use in self._in_use.values() if use is not None]

    def holds(self, block: Block) -> bool:
        """Whether it is a block of this heap."""
        return isinstance(block, Block) and block._freed is self._freed

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
        # no loop in the with-body: an interrupt at the end of an iteration would leave the lock taken in CPython 3.13
        with self._lock:
            self._settle()
            block = self._first_fit(size, alignment, devices, of_runtime)
        if block is None:
            used = self._used
            raise OutOfMemoryError(f"device memory is full: {size} bytes wanted, {used} of each device's are in use")
        return block

    def _first_fit(self, size: int, alignment: int, devices: Sequence[int], of_runtime: bool) -> Block | None:
        bounds = iter(self._bounds)
        for i, (start, end) in enumerate(zip(bounds, bounds, strict=True)):
            offset = (start + alignment - 1) // alignment * alignment
            if offset + size <= end:
                return self._take(2 * i, offset, size, devices, of_runtime)
        return None

    def _take(self, k: int, offset: int, size: int, devices: Sequence[int], of_runtime: bool) -> Block:
        """A block of the free range that begins at bound k."""
        stop, host_bytes, hosted = offset + size, 0, self._hosted
        if self._headroom is not None:
            host_bytes = size * self._headroom.count(devices)
            hosted = self._promise(self._headroom, offset, stop, host_bytes, devices)
        bounds, high = self._bounds, self._high
        begin, end = bounds[k], bounds[k + 1]
        pieces = [begin, offset] if begin < offset else []
        if stop < end:
            pieces += (stop, end)
        idle = self._idle if offset >= high else max(0, self._idle - (min(stop, high) - offset))
        high = max(high, stop)
        block = Block(self._freed, offset, size)
        use, key = (block._claim, offset, size, host_bytes, of_runtime), id(block._claim)
        used, (peak, blocks, largest) = self._used + size, self._most
        most = max(peak, used), blocks + 1, max(largest, size)
        changed = pieces, use, used, most, idle, high, hosted
        bounds[k : k + 2], self._in_use[key], self._used, self._most, self._idle, self._high, self._hosted = changed
        return block

    def _promise(
        self, headroom: Headroom, begin: int, end: int, host_bytes: int, devices: Sequence[int]
    ) -> tuple[int, int, list[tuple[int, int]]]:
        """Check the headroom for a block from `begin` to `end`, on each of the devices: `_hosted` with it."""
        count = host_bytes // (end - begin)
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
        _, of_blocks, holes = self._hosted
        if holes:
            left = [piece for a, b in holes for piece in ((a, min(b, begin)), (max(a, end), b))]
            holes = [(a, b) for a, b in left if a < b]
        return promised, of_blocks + host_bytes, holes

    def _promised_with(self, begin: int, end: int, count: int) -> int:
        """What is promised with a block on `count` devices: they may touch pages there that others never did."""
        promised, of_blocks, _ = self._hosted
        return max(promised + self._unpromised(begin, end) * count, of_blocks + (end - begin) * count)

    def _require(self, headroom: Headroom, promised: int, count: int, devices: Sequence[int]) -> None:
        headroom.require(promised, (promised - self._hosted[0]) // max(1, count), devices)

    def _unpromised(self, begin: int, end: int) -> int:
        """Bytes of a range that have no pages."""
        inside = sum(max(0, min(end, b) - max(begin, a)) for a, b in self._hosted[2])
        return inside + max(0, end - max(begin, self._high))

    def _settle(self) -> None:
        """Take freed blocks back, joining neighbours; give memory back where too much is idle.

        The claim of a block that was taken back already, as after an interrupt, or was never in use, changes nothing.
        """
        freed = self._freed
        while freed:
            key = id(freed[0])
            if (use := self._in_use.get(key)) is not None:
                self._take_back(key, use)
            self._in_use.pop(key, None)
            freed.popleft()
        if self._idle > KEPT_IDLE_BYTES and self._idle > self._used:
            self._give_back()

    def _take_back(self, key: int, use: _Use) -> None:
        _, begin, size, host_bytes, _ = use
        bounds, end = self._bounds, begin + size
        i = bisect.bisect_right(bounds, begin)
        following = bounds[i] if i < len(bounds) else None
        if i % 2 or (following is not None and following < end):
            raise InternalError(f"bytes {begin} to {end} of device memory: expected a block in use, found free bytes")
        first, last = i, i + (following == end)
        pieces = [begin] if following == end else [begin, end]
        if i and bounds[i - 1] == begin:
            first -= 1
            del pieces[0]
        promised, of_blocks, holes = self._hosted
        hosted = promised, of_blocks - host_bytes, holes
        changed = pieces, None, self._used - size, self._idle + size, hosted
        bounds[first:last], self._in_use[key], self._used, self._idle, self._hosted = changed

    def _give_back(self) -> None:
        promised, of_blocks, _ = self._hosted
        checked = self._checked
        holes: list[tuple[int, int]] = []
        bounds = iter(self._bounds)
        for start, end in zip(bounds, bounds, strict=True):
            begin = (start + PAGE - 1) // PAGE * PAGE
            stop = min(end, self._high) // PAGE * PAGE
            if stop - begin >= PUNCHED_BYTES:
                holes.append((begin, stop))
                for segment in self._segments:
                    segment.punch(begin - self._begin, stop - begin)
        if self._headroom is not None:  # blocks in use may get the pages that they do not have yet
            promised = checked = max(self._headroom.resident(), of_blocks)
            self._headroom.promise(promised)
        changed = (promised, of_blocks, holes), 0, checked
        self._hosted, self._idle, self._checked = changed
