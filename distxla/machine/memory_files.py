"""Memory files: they have no name anywhere, only their user can open them, and they are gone with the last process that
has them open or mapped. Others open them through /proc/<owner>/fd, which the kernel grants to the same user."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re

from distxla.errors import ClusterError
from distxla.machine.shortages import FILE_SIZE

_PUNCH_HOLE_KEEP_SIZE = 3
_libc = ctypes.CDLL(None, use_errno=True)


def memory_file(name: str, size: int = 0, *, sealable: bool = False) -> int:
    """The descriptor of a new one of zeros, which takes memory where it is written.  sealable: for `seal`; it is then
    for this user alone.  OSError where there can be none, ClusterError where files may not be so large."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | (os.MFD_ALLOW_SEALING if sealable else 0))
    try:
        if sealable:
            os.fchmod(descriptor, 0o600)
        if size:
            os.ftruncate(descriptor, size)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            raise ClusterError(f"there can be no memory file of {size >> 10} KiB: {FILE_SIZE}") from error
        raise
    return descriptor


def seal(descriptor: int, *, content: bool) -> None:
    """Let nobody change the file's size any more (an access could then kill its user); content: nor its bytes."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | (fcntl.F_SEAL_WRITE if content else 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)


def release(descriptor: int, offset: int, size: int) -> None:
    """Give the memory of whole pages back: they are zeros then."""
    _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_longlong(offset), ctypes.c_longlong(size))


def resident_bytes(descriptor: int) -> int:
    """Bytes of it that have pages."""
    return os.fstat(descriptor).st_blocks * 512


def held_bytes(descriptor: int, begin: int, end: int) -> int:
    """Bytes in [begin, end) that have pages. It moves the descriptor's position."""
    found, at = 0, begin
    while at < end:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is none behind `at`
                break
            raise
        if start >= end:
            break
        at = min(end, os.lseek(descriptor, start, os.SEEK_HOLE))
        found += at - start
    return found


def path_of(descriptor: int) -> str:
    """The path by which others of this user open a memory file, or a pipe, of this process, as long as it is open
    here."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def is_of_process(path: str) -> bool:
    """Whether a path is one of `path_of`, of whatever process."""
    return re.fullmatch(r"/proc/\d+/fd/\d+", path) is not None


def open_descriptor(pid: int, descriptor: int, size: int) -> int:
    """A descriptor of our own for a memory file of another process; ClusterError where that is not possible."""
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
