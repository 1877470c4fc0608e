"""Watches a folder for files that are complete."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

_CLOSE_WRITE: Final = 8
_EVENT: Final = struct.Struct("iIII")  # of inotify: watch, mask, cookie, bytes of the name


def watch_folder(folder: str) -> int:
    """A descriptor, readable when a file of the folder that was open for writing has been closed; OSError where there
    can be none."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = int(libc.inotify_init1(os.O_CLOEXEC))
    if events < 0 or libc.inotify_add_watch(events, os.fsencode(folder), _CLOSE_WRITE) < 0:
        number = ctypes.get_errno()
        if events >= 0:
            os.close(events)
        raise OSError(number, os.strerror(number))
    return events


def closed_files(events: int) -> list[str]:
    """The names of the files since the last call; blocks until there is one."""
    data, names, at = os.read(events, 1 << 16), [], 0
    while at < len(data):
        *_, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        names.append(os.fsdecode(data[at : at + length].rstrip(b"\0")))
        at += length
    return names
