"""Processes of this machine: what /proc tells of them, their ends, and the end of this one.

A process's descriptor (pidfd) becomes readable when it has ended, and can't mean another process that has got its id.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
from contextlib import suppress

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of prctl
_HIGHEST_SCORE = "1000"
_STATUS_AT = 49  # in /proc/PID/stat, behind the name
_GET_INFO = 0xC040FF0B  # PIDFD_GET_INFO, for a struct pidfd_info of 64 bytes
_INFO_EXIT = 1 << 3  # its exit status is known; Linux 6.15
_EXIT_CODE_AT = 60  # in that struct
_libc = ctypes.CDLL(None)


def kernel_text(path: str) -> str:
    """A file of the kernel below /proc, such as `self/status`; OSError where it or its process is not there."""
    with open(f"/proc/{path}", encoding="utf-8", errors="replace") as file:
        return file.read()


def has_process_files() -> bool:
    """Whether /proc is mounted: there processes find each other's memory and ends."""
    return os.path.isdir("/proc/self/fd")


def process_namespace() -> str:
    """Tells the processes that this one can see from those of other containers of the machine."""
    return os.readlink("/proc/self/ns/pid")


def process_ids() -> list[int]:
    """Of all processes that this one can see."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def status_fields(process: int) -> list[str]:
    """The fields of its `stat` behind its name: state, parent, ...; OSError where it has been waited for."""
    return kernel_text(f"{process}/stat").rpartition(")")[2].split()


def main_thread_at(process: int) -> tuple[str, int] | None:
    """The state of a process's main thread, `S` where it sleeps, and the ticks of processor time that it has had; None
    where the process is gone, or not one of this machine."""
    with suppress(OSError, IndexError):
        fields = kernel_text(f"{process}/task/{process}/stat").rpartition(")")[2].split()
        return fields[0], int(fields[11]) + int(fields[12])
    return None


def table_of(path: str) -> dict[str, str]:
    """The lines `name: value` of a file below /proc, up to the first empty one; OSError as kernel_text."""
    lines = kernel_text(path).partition("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def command_line(process: int) -> bytes:
    """Its words, each with a zero behind it; OSError where it has been waited for."""
    with open(f"/proc/{process}/cmdline", "rb") as file:
        return file.read()


def is_stopped(process: int) -> bool:
    """Whether a process of this machine is stopped, by a signal or a debugger."""
    try:
        return status_fields(process)[0] in ("T", "t")
    except OSError:
        return False


def is_ending(process: int) -> bool:
    """Whether the process has ended, or has been sent a SIGKILL that it has not had the time to obey."""
    try:
        fields = table_of(f"{process}/status")
    except OSError:
        return True
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return fields["State"][0] in "ZX" or bool(pending >> (signal.SIGKILL - 1) & 1)


def ended_by(process: int, descriptor: int) -> int | None:
    """The signal that has ended a process, 0 if it has exited; None if the kernel does not say.

    descriptor: the process's.
    """
    status = _wait_status(process, descriptor)
    return None if status is None else status & 0x7F


def exit_status_of(process: int, descriptor: int) -> int | None:
    """The status with which a process has exited; None if a signal has ended it, or the kernel does not say.

    descriptor: the process's.
    """
    status = _wait_status(process, descriptor)
    return status >> 8 if status is not None and not status & 0x7F else None


def _wait_status(process: int, descriptor: int) -> int | None:
    status = _status_of_a_zombie(process)
    return _status_by_descriptor(descriptor) if status is None else status


def _status_of_a_zombie(process: int) -> int | None:
    """The wait status of a process that its parent has not waited for yet."""
    try:
        fields = status_fields(process)
    except OSError:
        return None
    return int(fields[_STATUS_AT]) if len(fields) > _STATUS_AT and fields[0] in ("Z", "X") else None


def _status_by_descriptor(descriptor: int) -> int | None:
    """The wait status of a process that its parent has waited for."""
    info = bytearray(64)
    struct.pack_into("<Q", info, 0, _INFO_EXIT)
    with suppress(OSError):
        fcntl.ioctl(descriptor, _GET_INFO, info)
        if struct.unpack_from("<Q", info)[0] & _INFO_EXIT:
            return int(struct.unpack_from("<i", info, _EXIT_CODE_AT)[0])
    return None


def open_descriptors() -> set[int]:
    """Those of this process, and that of this listing."""
    return set(map(int, os.listdir("/proc/self/fd")))


def opened_by(descriptor: int) -> str:
    """What a descriptor of this process is open on: a path, `socket:[12]`, ...; OSError where it is closed."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


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


def is_readable(descriptor: int, seconds: float = 0) -> bool:
    """Whether a descriptor is readable within `seconds`; of a process: whether it has ended."""
    return bool(readable(descriptor, seconds=seconds))


def let_be_killed_first() -> None:
    """Where memory lacks, let the kernel end this process rather than others. Nothing happens where it may not."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(_HIGHEST_SCORE)


def let_be_killed_as_others() -> None:
    """Take back what `let_be_killed_first` has done, here or in an ancestor. Nothing happens where it may not."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("0")


def end_with_parent() -> None:
    """Let the kernel end this process as soon as the thread that has started it ends."""
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """From here on descendants whose own parent has ended become children of this process."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
