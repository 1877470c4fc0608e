"""Threads for work that may block for long, and for which the end of the process does not wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from distxla.jax.processes.said import guarded
from distxla.machine.shortages import started_thread


class DaemonThreads:
    """At most so many, which are started as they are needed. Work that raises is told on stderr."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._lock = threading.Lock()  # of the counts below
        self._count = self._free = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def do(self, work: Callable[[], None]) -> None:
        """Have work done by a thread, soon; does not block. ClusterError where none can be started."""
        with self._lock:
            self._free -= 1
            is_new = self._free < 0 and self._count < self._most
            if is_new:
                self._count += 1
                self._free += 1
        self._work.put(work)
        if is_new:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            started_thread(thread, "no calls could be issued")

    def close(self) -> None:
        """Threads end when they have done what was given before; does not wait."""
        with self._lock:
            count = self._count
        for _ in range(count):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            guarded(work)
            with self._lock:
                self._free += 1


__all__ = ["DaemonThreads"]
