"""Processes of a host that use its devices, and are not the driver's: their ends, which it can't see from elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from distxla.machine.processes import descriptor_of, ended_by, exit_status_of, readable
from distxla.runtime.hosts.process_ends import KillCounts, how_ended


class Users:
    """A thread for each sleeps on its descriptor.

    ended: called in that thread with the number of a process, the signal that has ended it as process_ends says it, ""
    for none, and the status with which it has exited, where that is known.
    """

    def __init__(self, ended: Callable[[int, str, int | None], None]) -> None:
        self._ended = ended

    def watch(self, number: int, pid: int) -> None:
        """Tell of the end of a process; at once where it has ended already."""
        try:
            descriptor = descriptor_of(pid)
        except OSError:
            self._ended(number, "", None)
            return
        kills = KillCounts([pid])
        thread = threading.Thread(target=self._wait, args=(number, pid, descriptor, kills), daemon=True)
        thread.start()

    def _wait(self, number: int, pid: int, descriptor: int, kills: KillCounts) -> None:
        readable(descriptor)
        by = ended_by(pid, descriptor)
        how, status = how_ended(by, kills.risen(), "").removeprefix("by "), None
        if by == 0:
            status = exit_status_of(pid, descriptor)
        os.close(descriptor)
        self._ended(number, how, status)


__all__ = ["Users"]
