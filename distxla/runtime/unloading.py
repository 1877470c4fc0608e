"""Unloads programs when their executables are destroyed."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from distxla.errors import ClusterError

LOGGER = logging.getLogger("distxla")


class Unloader:
    """Calls `unload` with the number of each program whose executable was destroyed, in a thread of its own: that may
    happen inside any garbage collection, where taking a lock or blocking could deadlock."""

    def __init__(self, unload: Callable[[int], None]) -> None:
        self._unload = unload
        self._gone: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._watched: list[weakref.finalize[[int], object]] = []

    def watch(self, executable: object, number: int) -> None:
        """The executable's program was loaded as `number`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="distxla-unload", daemon=True)
            self._thread.start()
        watching = weakref.finalize(executable, self._gone.put, number)
        watching.atexit = False
        self._watched = [*(each for each in self._watched if each.alive), watching]

    def living(self) -> list[Any]:
        """The executables that are watched and were not destroyed."""
        return [found[0] for each in self._watched if (found := each.peek()) is not None]

    def close(self) -> None:
        """Unload nothing any more; blocks while something is being unloaded. Twice is fine."""
        self._gone.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (number := self._gone.get()) is not None:
            try:
                self._unload(number)
            except ClusterError:  # Ray was shut down, as at the end of the process, and the replicas ended with it
                pass
            except Exception as error:
                LOGGER.warning("distxla: program %d was not unloaded: %s", number, error)
