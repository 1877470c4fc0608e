"""Address space of this process. Functions raise OSError where memory, room or permission is missing; `advise` and
`unmap` return what the kernel says.

Needs ctypes only, no NumPy: a replica that loads a program stays small.
"""

from __future__ import annotations

import ctypes
import mmap
import os

PAGE = mmap.PAGESIZE
NO_ACCESS, READ, WRITE, EXECUTE = 0, mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC
PRIVATE, ANONYMOUS, SHARED = mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS, mmap.MAP_SHARED
FIXED, WITHOUT_RESERVE = 0x10, 0x4000  # of Linux (asm-generic/mman.h)
_FAILED = ctypes.c_void_p(-1).value
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
_libc.mprotect.argtypes = _libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
unmap = _libc.munmap  # (address, bytes): takes the range out of the address space


def whole_pages(size: int) -> int:
    """The bytes of the pages that hold so many."""
    return -(-size // PAGE) * PAGE


def map_memory(
    size: int, access: int = READ | WRITE, flags: int = PRIVATE | ANONYMOUS, descriptor: int = -1, at: int | None = None
) -> int:
    """The address of `size` new bytes.  at: the address, where `flags` has FIXED."""
    found = _libc.mmap(at, size, access, flags, descriptor, 0)
    if found is None or found == _FAILED:
        raise _error()
    return int(found)


def protect(address: int, size: int, access: int) -> None:
    """Let whole pages be accessed so."""
    if _libc.mprotect(address, size, access):
        raise _error()


def advise(address: int, size: int, advice: int) -> int:
    """Advise the kernel about whole pages; 0, or the errno where it refuses."""
    return ctypes.get_errno() if _libc.madvise(address, size, advice) else 0


def map_stacks(count: int, size: int) -> int:
    """The address of `count` stacks of `size` bytes, whole pages, below each of which a page can't be accessed: stack k
    ends `(k + 1) * (size + PAGE)` bytes behind it. Pages cost memory once they are touched. Stays until the process
    ends."""
    try:
        base = map_memory(count * (size + PAGE), flags=PRIVATE | ANONYMOUS | WITHOUT_RESERVE)
    except OSError as error:
        raise OSError(error.errno, f"no memory for {count} stacks of {size} bytes") from None
    for number in range(count):
        try:
            protect(base + number * (size + PAGE), PAGE, NO_ACCESS)
        except OSError as error:
            unmap(base, count * (size + PAGE))
            raise OSError(error.errno, f"cannot guard {count} stacks") from None
    return base


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
