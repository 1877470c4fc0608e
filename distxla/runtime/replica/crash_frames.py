"""Python frames of a replica that a signal such as SIGSEGV ends: where in its Python, or Python's libraries, it was.

    frames = CrashFrames.create(8)                                   # the host's process
    write_frames_at_crashes(owner, frames.descriptor, 8, device=3)   # a replica
    frames.of(3)                                                     # "; its Python was in f (routines.py:12)"

The interpreter's own handler of such signals writes them, into a segment that outlives the process.
"""

from __future__ import annotations

import faulthandler
import io
import os
import re

from distxla.machine.memory_files import open_descriptor
from distxla.machine.segments import Segment

FRAMES_BYTES = 128 << 10  # of a device: 100 frames, whose names the handler cuts
SHOWN = 3  # frames
_FRAME = re.compile(rb'  File "(.*)", line (\d+) in (.*)')
_LAST = b"_serve"  # runtime/replica/replica.py: its callers are the same for every program

_kept: list[io.FileIO] = []  # what the handler writes into


class CrashFrames:
    """The frames of all devices of a host, in its process."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    @staticmethod
    def create(devices: int) -> CrashFrames:
        """devices: of the run. ClusterError or OSError where there is no memory."""
        return CrashFrames(Segment.create("distxla-frames", devices * FRAMES_BYTES))

    @property
    def descriptor(self) -> int:
        return self._segment.descriptor

    def of(self, device: int) -> str:
        """The innermost frames of a device that was ended by a signal, to follow its name; "" where none were in
        Python code."""
        written = self._segment.read(device * FRAMES_BYTES, FRAMES_BYTES).tobytes().partition(b"\0")[0]
        return frames_text(written)

    def close(self) -> None:
        """Twice is fine."""
        self._segment.close()


def write_frames_at_crashes(owner: int, descriptor: int, devices: int, device: int) -> None:
    """From now on a signal that ends this process has its frames written. ClusterError where the segment can't be
    opened.

    owner, descriptor: of the segment for so many `devices`.
    """
    opened = open_descriptor(owner, descriptor, devices * FRAMES_BYTES)
    os.lseek(opened, device * FRAMES_BYTES, os.SEEK_SET)
    file = io.FileIO(opened, "w")
    _kept[:] = [file]
    faulthandler.disable()  # Ray's: it would write into a file that nobody reads
    faulthandler.enable(file, all_threads=False)


def frames_text(written: bytes) -> str:
    """What the handler of signals has `written`, as words: `; its Python was in f (m.py:12), called by g (m.py:20)`."""
    head, _, stack = written.partition(b"(most recent call first):\n")
    if not head:
        return ""
    frames = []
    for line in stack.split(b"\n"):
        found = _FRAME.fullmatch(line)
        if found is None or found[3] == _LAST:
            break
        file, number, name = (os.fsdecode(part) for part in found.groups())
        frames.append(f"{name} ({file}:{number})")
    if frames:
        return f"; its Python was in {', called by '.join(frames[:SHOWN])}"
    return "" if stack.startswith(b"  File") else ", in a thread that runs no Python"


__all__ = ["CrashFrames", "frames_text", "write_frames_at_crashes"]
