"""Allocates pages before this process first writes to them: a lack of memory is an error instead of a SIGBUS."""

from __future__ import annotations

import errno
import mmap
import os

from distxla.errors import OutOfMemoryError
from distxla.machine.byte_counts import amount
from distxla.machine.mappings import PAGE, advise

CHUNK_BYTES = 64 << 20  # at a time, so that interrupts are handled in between
_MADV_POPULATE_WRITE = 23  # Linux 5.14


class BackedPages:
    """The pages of a shared mapping that are known to be allocated.

    address: of the mapping.  descriptor: of the mapped file, to allocate in if the kernel lacks MADV_POPULATE_WRITE.
    """

    def __init__(self, address: int, size: int, descriptor: int) -> None:
        self._address = address
        self._descriptor = descriptor
        # a byte a page, 1 where it is there; private, so that it takes no memory before something is written
        self._known = mmap.mmap(-1, -(-size // PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def require(self, offset: int, size: int) -> None:
        """Allocate the pages of these bytes that are not known to be there; OutOfMemoryError if the kernel has none."""
        first, end = offset // PAGE, -(-(offset + size) // PAGE)
        if self._known.find(b"\0", first, end) < 0:
            return
        for begin in range(first * PAGE, end * PAGE, CHUNK_BYTES):
            self.make(begin, min(CHUNK_BYTES, end * PAGE - begin))
        self._known[first:end] = b"\1" * (end - first)

    def forget(self, offset: int, size: int) -> None:
        """The pages of a page-aligned range were released."""
        first, end = offset // PAGE, (offset + size) // PAGE
        self._known[first:end] = bytes(end - first)

    def make(self, offset: int, size: int) -> None:
        number = advise(self._address + offset, size, _MADV_POPULATE_WRITE)
        if not number:
            return None
        if number == errno.EINVAL:  # a kernel before 5.14
            try:
                return os.posix_fallocate(self._descriptor, offset, size)
            except OSError as error:
                number = error.errno or errno.ENOSPC
        why = os.strerror(errno.ENOSPC if number == errno.EFAULT else number)
        raise OutOfMemoryError(
            f"{amount(size)} of shared memory, for what is written at {offset:#x}, can't be had: {why}"
        )
