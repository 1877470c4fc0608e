"""The emulated GPU's memory: memory files at addresses of this process that it can't access but while kernels run."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from distxla.errors import ClusterError
from distxla.machine.segments import open_descriptor
from distxla.targets.nvptx.driver.emulated.failure import Failure
from distxla.targets.nvptx.interfaces import driver as interface

PAGE = 4096
NO_ACCESS, ACCESS = 0, mmap.PROT_READ | mmap.PROT_WRITE
FREED = b"\1"  # in the page behind the memory: how importers learn of it
_FIXED, _NO_RESERVE = 0x10, 0x4000  # of Linux (asm-generic/mman.h)
_HANDLE = struct.Struct("<8sIIQ")
_MAGIC = b"emulated"
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
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Allocation:
    """Memory of the GPU. owner: pidfd of the process that allocated it; None: this one."""

    def __init__(self, descriptor: int, size: int, owner: int | None = None) -> None:
        self.descriptor, self.size, self.owner = descriptor, size, owner
        pages = -(-size // PAGE) * PAGE
        self._mapped = pages
        # a page before and one behind stay out of reach; none of these addresses is ever used again
        reserved = self._map(None, pages + 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, -1)
        self.address = self._map(reserved + PAGE, pages, mmap.MAP_SHARED | _FIXED, descriptor)

    @staticmethod
    def _map(address: int | None, size: int, flags: int, descriptor: int) -> int:
        found = _libc.mmap(address, size, NO_ACCESS, flags, descriptor, 0)
        if found is None or found == ctypes.c_void_p(-1).value:
            raise Failure(interface.OUT_OF_MEMORY, f"no address space: {os.strerror(ctypes.get_errno())}")
        return int(found)

    @property
    def end(self) -> int:
        return self.address + self.size

    def protect(self, access: int) -> None:
        if _libc.mprotect(self.address, self._mapped, access):
            raise Failure(interface.UNKNOWN, os.strerror(ctypes.get_errno()))

    def require_owner(self) -> None:
        """Failure where the memory belonged to a process that has freed it, or ended."""
        if self.owner is None:
            return
        if select.select([self.owner], [], [], 0)[0]:
            raise Failure(interface.ILLEGAL_ADDRESS, "the process has ended that allocated the memory")
        if os.pread(self.descriptor, 1, self._mapped) == FREED:
            raise Failure(interface.ILLEGAL_ADDRESS, "the process that allocated the memory has freed it")

    @property
    def is_there(self) -> bool:
        """Whether the process that allocated it still has it."""
        try:
            self.require_owner()
        except Failure:
            return False
        return True

    def read(self, offset: int, view: memoryview) -> None:
        self.require_owner()
        done = 0
        while done < len(view):
            done += os.preadv(self.descriptor, [view[done:]], offset + done)

    def write(self, offset: int, view: memoryview) -> None:
        self.require_owner()
        done = 0
        while done < len(view):
            done += os.pwritev(self.descriptor, [view[done:]], offset + done)

    def close(self) -> None:
        """Give the memory back; the addresses stay taken."""
        if self.owner is None:
            os.pwrite(self.descriptor, FREED, self._mapped)
        else:
            os.close(self.owner)
        self._map(self.address, self._mapped, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE | _FIXED, -1)
        os.close(self.descriptor)
        self.descriptor = -1


class Memories:
    """The allocations that a context can access, its own and those of other processes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: dict[int, Allocation] = {}

    @property
    def free_bytes(self) -> int:
        return self._size - sum(one.size for one in self._found.values() if one.owner is None)

    def __iter__(self) -> Iterator[Allocation]:
        return iter(self._found.values())

    def allocate(self, size: int) -> int:
        if size <= 0:
            raise Failure(interface.INVALID_VALUE, f"{size} bytes")
        if size > self.free_bytes:
            raise Failure(interface.OUT_OF_MEMORY, f"{size} bytes of {self.free_bytes} that are free")
        descriptor = os.memfd_create("emulated-gpu", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, -(-size // PAGE) * PAGE + PAGE)
        return self._add(Allocation(descriptor, size))

    def _add(self, made: Allocation) -> int:
        self._found[made.address] = made
        return made.address

    def close(self, address: int, *, own: bool) -> None:
        found = self._found.get(address)
        if found is None or (found.owner is None) is not own:
            raise Failure(interface.INVALID_VALUE, f"no {'allocation' if own else 'imported memory'} at {address:#x}")
        del self._found[address]
        found.close()

    def export(self, address: int) -> bytes:
        found = self._found.get(address)
        if found is None or found.owner is not None:
            raise Failure(interface.INVALID_VALUE, f"no allocation at {address:#x}")
        packed = _HANDLE.pack(_MAGIC, os.getpid(), found.descriptor, found.size)
        return packed.ljust(interface.IPC_HANDLE_BYTES, b"\0")

    def open(self, handle: bytes) -> int:
        magic, pid, number, size = _HANDLE.unpack_from(handle)
        if magic != _MAGIC:
            raise Failure(interface.INVALID_VALUE, "no handle of memory")
        if pid == os.getpid():
            raise Failure(interface.INVALID_CONTEXT, "memory of this process can't be imported")
        try:
            owner = os.pidfd_open(pid)
        except OSError as error:
            raise Failure(interface.MAP_FAILED, "the process has ended that allocated the memory") from error
        try:
            descriptor = open_descriptor(pid, number, -(-size // PAGE) * PAGE + PAGE)
        except ClusterError as error:
            os.close(owner)
            raise Failure(interface.MAP_FAILED, error.message) from error
        made = Allocation(descriptor, size, owner)
        try:
            made.require_owner()
        except Failure:
            made.close()
            raise
        return self._add(made)

    def find(self, address: int, size: int) -> tuple[Allocation, int]:
        """The allocation that holds a range, and the offset in it."""
        for one in self._found.values():
            if one.address <= address and address + size <= one.end:
                return one, address - one.address
        raise Failure(interface.INVALID_VALUE, f"{size} bytes at {address:#x} are not within one allocation")

    def holds(self, address: int) -> bool:
        return any(one.address <= address <= one.end for one in self._found.values())

    @contextmanager
    def accessible(self) -> Iterator[list[Allocation]]:
        """Let this process access the memory: only while kernels run. Gives all that is still there."""
        opened: list[Allocation] = []
        try:
            for one in self._found.values():
                if one.is_there:
                    one.protect(ACCESS)
                    opened.append(one)
            yield opened
        finally:
            self._shut(opened)

    @staticmethod
    def _shut(opened: Iterable[Allocation]) -> None:
        for one in opened:
            one.protect(NO_ACCESS)

    def close_all(self) -> None:
        for one in self._found.values():
            one.close()
        self._found.clear()


__all__ = ["Allocation", "Memories"]
