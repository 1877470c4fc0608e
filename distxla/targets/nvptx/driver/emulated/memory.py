"""The emulated GPU's memory: memory files at addresses of this process that it can't access but while kernels run."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from distxla.errors import ClusterError
from distxla.machine.mappings import (
    ANONYMOUS,
    FIXED,
    NO_ACCESS,
    PAGE,
    PRIVATE,
    READ,
    SHARED,
    WITHOUT_RESERVE,
    WRITE,
    map_memory,
    protect,
    whole_pages,
)
from distxla.machine.memory_files import memory_file, open_descriptor
from distxla.machine.processes import descriptor_of, readable
from distxla.targets.nvptx.driver.emulated.failure import Failure
from distxla.targets.nvptx.interfaces import driver as interface

FREED = b"\1"  # in the page behind the memory: how importers learn of it
_HANDLE = struct.Struct("<8sIIQ")
_MAGIC = b"emulated"


class Allocation:
    """Memory of the GPU. owner: descriptor of the process that allocated it; None: this one."""

    def __init__(self, descriptor: int, size: int, owner: int | None = None) -> None:
        self.descriptor, self.size, self.owner = descriptor, size, owner
        self._mapped = pages = whole_pages(size)
        # a page before and one behind stay out of reach; none of these addresses is ever used again
        reserved = self._map(None, pages + 2 * PAGE, PRIVATE | ANONYMOUS | WITHOUT_RESERVE, -1)
        self.address = self._map(reserved + PAGE, pages, SHARED | FIXED, descriptor)

    @staticmethod
    def _map(address: int | None, size: int, flags: int, descriptor: int) -> int:
        try:
            return map_memory(size, NO_ACCESS, flags, descriptor, address)
        except OSError as error:
            raise Failure(interface.OUT_OF_MEMORY, f"no address space: {error.strerror}") from error

    @property
    def end(self) -> int:
        return self.address + self.size

    def protect(self, access: int) -> None:
        try:
            protect(self.address, self._mapped, access)
        except OSError as error:
            raise Failure(interface.UNKNOWN, error.strerror or "") from error

    def require_owner(self) -> None:
        """Failure where the memory belonged to a process that has freed it, or ended."""
        if self.owner is None:
            return
        if readable(self.owner, seconds=0):
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
        self._map(self.address, self._mapped, PRIVATE | ANONYMOUS | WITHOUT_RESERVE | FIXED, -1)
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
        return self._add(Allocation(memory_file("emulated-gpu", whole_pages(size) + PAGE), size))

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
            owner = descriptor_of(pid)
        except OSError as error:
            raise Failure(interface.MAP_FAILED, "the process has ended that allocated the memory") from error
        try:
            descriptor = open_descriptor(pid, number, whole_pages(size) + PAGE)
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
                    one.protect(READ | WRITE)
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
