"""Processes of this machine: what /proc tells of them, their ends, and the end of this one.

A process's descriptor (pidfd) becomes readable when it has ended, and can't mean another process that has got its id.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from contextlib import suppress

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl
_libc = ctypes.CDLL(None)


def kernel_text(path: str) -> str:
    """A file of the kernel below /proc, such as `self/status`; OSError where it or its process is not there."""
    with open(f"/proc/{path}", encoding="utf-8", errors="replace") as file:
        return file.read()


def has_process_files() -> bool:
    """Whether /proc is mounted: there processes find each other's memory and ends."""
    return os.path.isdir("/proc/self/fd")


def process_ids() -> list[int]:
    """Of all processes that this one can see."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def status_fields(process: int) -> list[str]:
    """The fields of its `stat` behind its name: state, parent, ...; OSError where it has been waited for."""
    return kernel_text(f"{process}/stat").rpartition(")")[2].split()


def table_of(path: str) -> dict[str, str]:
    """The lines `name: value` of a file below /proc, up to the first empty one; OSError as kernel_text."""
    lines = kernel_text(path).partition("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def command_line(process: int) -> bytes:
    """Its words, each with a zero behind it; OSError where it has been waited for."""
    with open(f"/proc/{process}/cmdline", "rb") as file:
        return file.read()


def open_files() -> dict[int, str]:
    """The descriptors of this process, and what each is open on: a path, `socket:[12]`, ..."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was the listing's own
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return found


def descriptor_of(process: int) -> int:
    """A new descriptor of a process, to be closed; OSError, such as ProcessLookupError, where there can be none."""
    return os.pidfd_open(process)


def send_signal(descriptor: int, number: signal.Signals) -> None:
    """Signal a process by its descriptor; nothing happens where it has ended."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def readable(*descriptors: int, seconds: float | None = None) -> list[int]:
    """Those of the descriptors that are readable, at an end, or of processes that have ended; blocks until one is, at
    most so many seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]


def end_with_parent() -> None:
    """Let the kernel end this process as soon as the thread that has started it ends."""
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
