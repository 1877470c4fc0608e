"""How the process of a replica has ended. It is no child of this process, so there is no wait status."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import struct
from collections.abc import Iterable
from pathlib import Path

from distxla import clock
from distxla.machine.memory_limits import Group, own_groups
from distxla.runtime.replica.serve import FAULT_SIGNALS

TOGETHER_S = 1.0
_GET_INFO = 0xC040FF0B  # PIDFD_GET_INFO, for a struct pidfd_info of 64 bytes
_INFO_EXIT = 1 << 3  # its exit status is known; Linux 6.15
_EXIT_CODE_AT = 60  # in that struct
_STATUS_AT = 49  # in /proc/PID/stat, behind the name


class KillCounts:
    """Counts of processes that the kernel has killed for want of memory, in the control groups of `processes`, or on
    the machine if the groups have no such count. To be made while the processes live.
    """

    def __init__(self, processes: Iterable[int]) -> None:
        self._counts = {group: count for group in own_groups(processes) if (count := group.kills()) is not None}
        self._machine = None if self._counts else _machine_kills()
        self._last = ("", 0.0)

    def risen(self) -> str:
        """Where the count has risen since the last call: "the control group /job", "this machine"; else "". Repeats the
        answer for TOGETHER_S: the kernel may have killed several processes at once."""
        where, now = self._risen(), clock.now()
        if where:
            self._last = where, now
        return where or (self._last[0] if now - self._last[1] < TOGETHER_S else "")

    def _risen(self) -> str:
        found: list[Group] = []
        for group, before in self._counts.items():
            now = group.kills()
            if now is not None and now > before:
                found.append(group)
                self._counts[group] = now
        if found:
            return f"the control group {max(found, key=lambda group: len(group.name)).name}"
        if self._machine is not None and (count := _machine_kills()) is not None and count > self._machine:
            self._machine = count
            return "this machine"
        return ""


def ended_by(process: int, descriptor: int) -> int | None:
    """The signal that has ended a process, 0 if it has exited; None if the kernel does not say.

    descriptor: the process's pidfd.
    """
    status = _status_of_a_zombie(process)
    if status is None:
        status = _status_by_descriptor(descriptor)
    return None if status is None else status & 0x7F


def how_ended(number: int | None, lacking: str, frames: str) -> str:
    """`by SIGKILL, probably for want of memory: ...`, to follow "has ended"; "" if nothing is known.

    lacking: where the kernel has killed for want of memory since.  frames: where Python was at the last fault of the
    process, as crash_frames says it: of a child, if another signal has ended the process.
    """
    if number is None or not number:
        return ""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL and lacking:
        return f"by {name}, probably for want of memory: the kernel has killed for that in {lacking}"
    return f"by {name}{frames if number in FAULT_SIGNALS else ''}"


def _status_of_a_zombie(process: int) -> int | None:
    """The wait status of a process that its parent has not waited for yet."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[_STATUS_AT]) if len(fields) > _STATUS_AT and fields[0] in ("Z", "X") else None


def _status_by_descriptor(descriptor: int) -> int | None:
    """The wait status of a process that its parent has waited for."""
    info = bytearray(64)
    struct.pack_into("<Q", info, 0, _INFO_EXIT)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _GET_INFO, info)
        if struct.unpack_from("<Q", info)[0] & _INFO_EXIT:
            return int(struct.unpack_from("<i", info, _EXIT_CODE_AT)[0])
    return None


def _machine_kills() -> int | None:
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
