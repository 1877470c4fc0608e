"""What native code and Python share of a call that a process makes, where several processes have devices."""

from __future__ import annotations

import ctypes
from typing import Final

HELD: Final = 4
"""In place of an Arrival: the owner has the devices of this process, or had, so nothing is commanded yet."""


class MadeCall(ctypes.Structure):
    """A call that goes through the call queue.

    launch: address of the LaunchSet of its processes.  program: the owner's number.  by_frames: BY_FRAMES where the
    owner is told of it, else 0.  site, site_bytes: the line that calls.  is_made: whether it has its place: `ordinal`
    among the calls of its processes, `turn` among all of this process.  line: what `site` points to.
    """

    line: bytes

    _fields_ = (
        ("is_made", ctypes.c_uint32),
        ("program", ctypes.c_uint32),
        ("by_frames", ctypes.c_uint32),
        ("launch", ctypes.c_void_p),
        ("site", ctypes.c_void_p),
        ("site_bytes", ctypes.c_uint64),
        ("ordinal", ctypes.c_uint64),
        ("turn", ctypes.c_uint64),
    )


__all__ = ["HELD", "MadeCall"]
