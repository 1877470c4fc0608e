"""How the process of a replica has ended. It is no child of this process, so there is no wait status."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from distxla import clock
from distxla.machine.fault_signals import FAULT_SIGNALS
from distxla.machine.memory_limits import Group, machine_kills, own_groups

TOGETHER_S = 1.0


class KillCounts:
    """Counts of processes that the kernel has killed for want of memory, in the control groups of `processes`, or on
    the machine if the groups have no such count. To be made while the processes live.
    """

    def __init__(self, processes: Iterable[int]) -> None:
        self._counts = {group: count for group in own_groups(processes) if (count := group.kills()) is not None}
        self._machine = None if self._counts else machine_kills()
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
        if self._machine is not None and (count := machine_kills()) is not None and count > self._machine:
            self._machine = count
            return "this machine"
        return ""


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
