"""A cut network, without one: the kernel drops what comes for a socket, acknowledgements too, as if it never came."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_PIDFD_GETFD: Final = 438
_DROP = struct.Struct("@HBBI")  # struct sock_filter


def cut(sock: socket.socket) -> None:
    """Nothing comes here any more."""
    program = ctypes.create_string_buffer(_DROP.pack(6, 0, 0, 0))  # return 0: no byte of the packet is kept
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))


def mend(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, struct.pack("@i", 0))


@contextmanager
def sockets_of(pid: int) -> Iterator[list[socket.socket]]:
    """The TCP connections of another process. PermissionError where this one may not have them."""
    process = os.pidfd_open(pid)
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
                descriptor = _of_process(process, int(name))
                with suppress(OSError):
                    one = socket.socket(fileno=descriptor)
                    found.append(one)
                    one.getpeername()
        yield [one for one in found if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM]
    finally:
        os.close(process)
        for one in found:
            one.close()


def _of_process(process: int, descriptor: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(got)
