"""Anonymous shared memory: device memories and control blocks.

A segment is a memory file (memory_files.py). It is sparse: address space is cheap, only touched pages cost memory. The
driver makes the segments; replicas open them.

Behind a device's own memory its mapping goes on with memory that all devices of the host share, at the same offsets for
all of them: results of collectives that are the same for all members exist there once.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla.errors import ClusterError
from distxla.machine.mappings import (
    ANONYMOUS,
    FIXED,
    NO_ACCESS,
    PRIVATE,
    READ,
    SHARED,
    WITHOUT_RESERVE,
    WRITE,
    advise,
    map_memory,
    unmap,
)
from distxla.machine.memory_files import held_bytes, memory_file, open_descriptor, release, resident_bytes, seal
from distxla.machine.memory_limits import is_strict
from distxla.machine.pages import BackedPages

HUGE_PAGE = 2 << 20
HUGE_FROM = 1 << 30  # segments above this size are asked to have huge pages


class _Mapping:
    """Shared address space of descriptors, one after the other, until the last array over it is deleted; keeps no
    descriptor open. parts: (descriptor, bytes)."""

    def __init__(self, parts: Sequence[tuple[int, int]]) -> None:
        size = sum(part for _, part in parts)
        # The range is reserved first, so that nothing else can take the place of its later parts; at a multiple of the
        # huge pages' size, without which there are none.
        self._size = size + HUGE_PAGE
        try:
            self._address = map_memory(self._size, NO_ACCESS, PRIVATE | ANONYMOUS | WITHOUT_RESERVE)
            address = at = -(-self._address // HUGE_PAGE) * HUGE_PAGE
            for descriptor, part in parts:
                map_memory(part, READ | WRITE, SHARED | FIXED, descriptor, at)
                if part > HUGE_FROM:
                    advise(at, part, mmap.MADV_HUGEPAGE)  # kernels without them for shared memory refuse
                at += part
        except OSError as error:
            raise ClusterError(f"cannot map {size} bytes of shared memory: {error.strerror}") from error
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}

    def __del__(self, unmap: Any = unmap) -> None:  # at the end of the process the module's names are gone
        if hasattr(self, "_address"):
            unmap(self._address, self._size)


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
        """A new sparse segment of `size` bytes that can't be shrunk (an access could then kill its user).

        common: mapped behind it.
        """
        descriptor = memory_file(name, size, sealable=True)
        try:
            seal(descriptor, content=False)
            return Segment(descriptor, size, None if common is None else (common.descriptor, common.size))
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def open(
        pid: int, descriptor: int, size: int, common: tuple[int, int] | None = None, *, keep: bool = False
    ) -> Segment:
        """Map a segment of another process of the same user. ClusterError if that is not possible.

        common: descriptor there and bytes of the segment that is to be mapped behind it.  keep: whether the segment
        keeps a descriptor of its own, with which pages can be given back.
        """
        opened: list[tuple[int, int]] = []
        try:
            for number, expected in [(descriptor, size)] if common is None else [(descriptor, size), common]:
                opened.append((open_descriptor(pid, number, expected), expected))
            segment = Segment(*opened[0], opened[1] if common is not None else None)
            segment.descriptor = opened.pop(0)[0] if keep else -1
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
        return resident_bytes(self.descriptor) if self.descriptor >= 0 else 0

    def resident_part(self, begin: int, end: int) -> int:
        """Bytes of a range of it that have pages; 0 once it is closed."""
        return held_bytes(self.descriptor, begin, end) if self.descriptor >= 0 else 0

    def punch(self, offset: int, size: int) -> None:
        """See Pages; nothing happens once the segment is closed."""
        if self.descriptor < 0:
            return
        release(self.descriptor, offset, size)
        if self._pages is not None:
            self._pages.forget(offset, size)

    def close(self) -> None:
        """Close the driver's descriptor; arrays made from the segment stay valid."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
