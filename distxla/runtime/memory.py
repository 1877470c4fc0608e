"""Device memories and the control block: anonymous shared segments, and the allocator of the driver.

A segment is a memfd: it has no name anywhere, only its owner can open it, and it is gone with the last process that
maps it. It is sparse: address space is cheap, only touched pages cost memory. The driver makes the segments; replicas
open them through /proc/<driver>/fd, which the kernel grants to the same user only.

One heap serves all devices: a block has the same offset in every device's memory. Pages that a device never touches
cost it nothing.

Behind a device's own memory its mapping goes on with memory that all devices of the host have in common, at the same
offsets for all of them: what collectives give to everybody exists there once. It has a heap of its own.
"""

from __future__ import annotations

import bisect
import ctypes
import fcntl
import mmap
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from distxla.collectives.protocols import control_block as control
from distxla.collectives.protocols.relay_queue import RING_BYTES
from distxla.compiler.abi import ALIGNMENT
from distxla.errors import ClusterError, OutOfMemoryError
from distxla.machine.memory_limits import is_strict
from distxla.runtime.pages import PAGE, BackedPages

HUGE_PAGE = 2 << 20
CONTROL_BYTES = 1 << 30
KEPT_IDLE_BYTES = 256 << 20  # freed memory that stays in place to be used again
UNCHECKED_BYTES = 16 << 20  # by which all devices' memories may grow before the host's free memory is checked again
PUNCHED_BYTES = 1 << 20  # smaller ranges are not worth a system call
_FALLOC_PUNCH_HOLE_KEEP_SIZE = 3
_PROT_NONE, _MAP_FIXED, _MAP_NORESERVE = 0, 0x10, 0x4000  # Linux on x86-64
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_longlong,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Mapping:
    """Shared address space of descriptors, one behind the other, until the last array over it is deleted; keeps no
    descriptor open. parts: (descriptor, bytes)."""

    def __init__(self, parts: Sequence[tuple[int, int]]) -> None:
        size = sum(part for _, part in parts)
        # The range is reserved first, so that nothing else can take the place of its later parts; at a multiple of the
        # huge pages' size, without which there are none.
        self._size = size + HUGE_PAGE
        reserved = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._address = self._map(None, self._size, _PROT_NONE, reserved, -1)
        address = at = -(-self._address // HUGE_PAGE) * HUGE_PAGE
        for descriptor, part in parts:
            self._map(at, part, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor)
            if part > CONTROL_BYTES:
                _libc.madvise(at, part, mmap.MADV_HUGEPAGE)  # kernels without them for shared memory refuse
            at += part
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}

    @staticmethod
    def _map(address: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
        found = _libc.mmap(address, size, protection, flags, descriptor, 0)
        if found is None or found == ctypes.c_void_p(-1).value:
            raise ClusterError(f"cannot map {size} bytes of shared memory: {os.strerror(ctypes.get_errno())}")
        return int(found)

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            _libc.munmap(self._address, self._size)


class Segment:
    """A mapped segment. `bytes` is all of it, writable; the mapping lives as long as any array made from it.

    size: of the segment itself. common: (descriptor, bytes) of another one, which `bytes` holds behind it.
    """

    def __init__(self, descriptor: int, size: int, common: tuple[int, int] | None = None) -> None:
        self.descriptor = descriptor
        self.size = size
        mapping = _Mapping([(descriptor, size)] if common is None else [(descriptor, size), common])
        self.bytes: NDArray[np.uint8] = np.asarray(mapping)
        self.address = int(self.bytes.ctypes.data)
        # without strict overcommit a lack of pages is no SIGBUS: the kernel kills some process
        self._pages = BackedPages(self.address, self.bytes.nbytes, descriptor) if is_strict() else None

    @staticmethod
    def create(name: str, size: int, common: Segment | None = None) -> Segment:
        """A new sparse segment of `size` bytes that nobody can shrink (an access could then kill its user).

        common: mapped behind it.
        """
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return Segment(descriptor, size, None if common is None else (common.descriptor, common.size))
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def open(pid: int, descriptor: int, size: int, common: tuple[int, int] | None = None) -> Segment:
        """Map a segment of another process of the same user. ClusterError if that is not possible.

        common: descriptor there and bytes of the segment that is to be mapped behind it.
        """
        opened: list[tuple[int, int]] = []
        try:
            for number, expected in [(descriptor, size)] if common is None else [(descriptor, size), common]:
                opened.append((open_descriptor(pid, number, expected), expected))
            segment = Segment(*opened[0], opened[1] if common is not None else None)
            segment.descriptor = -1
            return segment
        finally:
            for number, _ in opened:
                os.close(number)

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """A view of some bytes."""
        return self.bytes[offset : offset + size]

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Copy bytes into the segment; OutOfMemoryError if the kernel has no pages for them."""
        if self._pages is not None:
            self._pages.require(offset, data.nbytes)
        self.bytes[offset : offset + data.nbytes] = data

    def require_pages(self, offset: int, size: int) -> None:
        """Allocate pages for bytes that this process will write; OutOfMemoryError if the kernel has none."""
        if self._pages is not None:
            self._pages.require(offset, size)

    def resident_bytes(self) -> int:
        """Bytes of it that have pages; 0 once it is closed."""
        return os.fstat(self.descriptor).st_blocks * 512 if self.descriptor >= 0 else 0

    def punch(self, offset: int, size: int) -> None:
        """See Pages; nothing happens once the segment is closed."""
        if self.descriptor < 0:
            return
        _libc.fallocate(
            self.descriptor, _FALLOC_PUNCH_HOLE_KEEP_SIZE, ctypes.c_longlong(offset), ctypes.c_longlong(size)
        )
        if self._pages is not None:
            self._pages.forget(offset, size)

    def close(self) -> None:
        """Close the driver's descriptor; arrays made from the segment stay valid."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def open_descriptor(pid: int, descriptor: int, size: int) -> int:
    """A descriptor of our own for a segment of another process."""
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ClusterError(
            f"the host's shared memory cannot be opened ({path}: {error.strerror}); all processes of a "
            "host must run as the same user and in the same container"
        ) from error
    status = os.fstat(opened)
    if status.st_uid != os.getuid() or status.st_size != size:
        os.close(opened)
        raise ClusterError(f"{path} is not the shared memory that was announced")
    return opened


class ControlBlock:
    """The control block's words, and space carved out of its end. Layout: collectives/protocols/control_block.py."""

    def __init__(self, segment: Segment, devices: int) -> None:
        self.segment = segment
        self.devices = devices
        self.view = segment.bytes.data
        self.words = self.view.cast("I")
        self.longs = self.view.cast("Q")
        fixed = control.fixed_bytes(devices)
        # its end is for the queue from devices to the relay
        self._heap = Heap(segment.size - RING_BYTES - fixed, (), begin=fixed)
        self._kept: list[Block] = []

    @staticmethod
    def create(devices: int, here: int | None = None) -> ControlBlock:
        """A new one for a run of `devices`, of which `here` live on this host: all by default."""
        block = ControlBlock(Segment.create("distxla-control", CONTROL_BYTES), devices)
        block.longs[control.H_MAGIC // 8] = control.MAGIC
        block.words[control.H_VERSION // 4] = control.VERSION
        block.words[control.H_DEVICES // 4] = devices
        block.words[control.H_HERE // 4] = devices if here is None else here
        block.words[control.H_CORES // 4] = len(os.sched_getaffinity(0))
        return block

    @staticmethod
    def open(pid: int, descriptor: int, devices: int) -> ControlBlock:
        """The driver's control block in a replica; ClusterError where its header is not what this version writes."""
        block = ControlBlock(Segment.open(pid, descriptor, CONTROL_BYTES), devices)
        found = (
            block.longs[control.H_MAGIC // 8],
            block.words[control.H_VERSION // 4],
            block.words[control.H_DEVICES // 4],
        )
        if found != (control.MAGIC, control.VERSION, devices):
            raise ClusterError(f"control block of another version of distxla: header {found}")
        return block

    def carve(self, size: int) -> int:
        """Offset of `size` zeroed bytes, 64-byte aligned, for the cluster's whole life. Thread-safe."""
        block = self.allocate(size)
        self._kept.append(block)
        return block.offset

    def allocate(self, size: int) -> Block:
        """`size` zeroed bytes, 64-byte aligned, until the block is freed. Thread-safe. Zero them before freeing them.

        OutOfMemoryError where it is full.
        """
        try:
            return self._heap.allocate(size)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"the control block, {self.segment.size >> 20} MiB, is full: it holds what the groups and channels of "
                "all loaded programs share; delete executables that are not needed any more"
            ) from error

    @property
    def used(self) -> int:
        """Bytes that are carved out or allocated."""
        return self._heap.used

    def record(self, device: int, field: int) -> int:
        """A u32 field of a device's record."""
        return self.words[(control.record_offset(device) + field) // 4]

    def record_long(self, device: int, field: int) -> int:
        """A u64 field of a device's record."""
        return self.longs[(control.record_offset(device) + field) // 8]

    def close(self) -> None:
        for view in (self.words, self.longs, self.view):
            view.release()
        self.segment.close()


class Pages(Protocol):
    """Memory that can be given back to the system."""

    def punch(self, offset: int, size: int) -> None:
        """Give the pages of a page-aligned range back; they read as zero afterwards."""


class Headroom(Protocol):
    """What a host has left for its devices' memories."""

    def count(self, devices: Sequence[int]) -> int:
        """How many of these devices live on the host; of none 1."""

    def resident(self) -> int:
        """Bytes that all the memories hold."""

    def require(self, promised: int, growth: int, devices: Sequence[int]) -> None:
        """OutOfMemoryError if the host can't hold `promised` bytes in all the memories. growth: bytes by which the
        memories of `devices` are to grow, for the message."""


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

    Freed ranges are used again as they are; once more than KEPT_IDLE_BYTES and more than is in use lie idle, ranges of
    at least PUNCHED_BYTES are given back to the system.

    headroom: checked before the part of the memories that may have pages grows, since a process that touches a page
    that the kernel can't provide is killed. None for a small heap.
    """

    def __init__(self, size: int, segments: Sequence[Pages], begin: int = 0, headroom: Headroom | None = None) -> None:
        self._segments = segments
        self._headroom = headroom
        # ranges given back and not allocated since; beyond _high nothing ever was
        self._holes: list[tuple[int, int]] = []
        # bytes on the host that have pages or may get them; bytes that the headroom has allowed
        self._promised = self._checked = 0
        self._in_use: dict[int, int] = {}  # by offset of a block its bytes on the host, touched or not
        self._in_use_bytes = 0  # their sum
        self._begin = begin
        self._lock = threading.Lock()
        self._freed: deque[tuple[int, int]] = deque()
        self._starts = [begin]
        self._ends = [begin + size]
        self._high = begin  # nothing beyond was ever in use
        self._used = 0
        self._idle = 0  # freed bytes that were not given back since

    @property
    def used(self) -> int:
        """Bytes in use, of each device's memory."""
        with self._lock:
            self._settle()
            return self._used

    def allocate(self, size: int, devices: Sequence[int] = ()) -> Block:
        """A block of at least `size` bytes; page-aligned from one page on. OutOfMemoryError when it is full, or
        when the host has no memory for it.

        devices: that will touch it; by default one.
        """
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
                    self._idle -= max(0, min(offset + size, self._high) - offset)
                    self._idle = max(0, self._idle)
                    self._high = max(self._high, offset + size)
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
                promised = self._promised_with(begin, end, count)  # what is given back may be a part of the block
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
        """Take freed blocks back, joining neighbours; give memory back where too much lies idle."""
        while self._freed:
            offset, size = self._freed.popleft()
            self._used -= size
            self._idle += size
            self._in_use_bytes -= self._in_use.pop(offset, 0)
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
