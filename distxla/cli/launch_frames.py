"""Frames between a launcher and the guards of other hosts (remote_guard.py), over their connections (distxla/wire/)."""

from __future__ import annotations

from typing import Final

from distxla.wire.frame import Frame, Frames, frame, u8, u32, u64

LARGEST: Final = 1 << 26  # bytes of a payload


@frame(1, payload="JSON {folder, command, environment, processes}")
class Start(Frame):
    """Start the processes of the host."""


@frame(2, payload="UTF-8, without its end")
class Line(Frame):
    """A line for the host's guard of processes: `signal 2`, `kill`."""


@frame(3)
class Taken(Frame):
    """So much of the output has been written here: as much may be sent again."""

    bytes: int = u64("of output")


@frame(32, payload="JSON {port}")
class Here(Frame):
    """The guard is there. port: of its host, which nobody uses."""


@frame(33, payload="the bytes; none at its end")
class Output(Frame):
    """What a process has written."""

    process: int = u32("its index")
    is_error: int = u8("1 for stderr")


@frame(34, payload="lines of JSON, as of launch_guard.py; none once nothing is left of the processes")
class Report(Frame):
    """What has become of the host's processes."""


LAUNCH_FRAMES: Final = Frames(4, "between a launcher and another host", Start, Line, Taken, Here, Output, Report)

__all__ = ["LARGEST", "LAUNCH_FRAMES", "Here", "Line", "Output", "Report", "Start", "Taken"]
