"""Unloading programs whose executables have gone."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable


class Unloader:
    """Calls `unload` with the number of each program whose executable has gone, in a thread of its own: an executable
    may go inside a garbage collection, anywhere, where no lock may be taken and nobody may be asked anything."""

    def __init__(self, unload: Callable[[int], None]) -> None:
        self._unload = unload
        self._gone: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def watch(self, executable: object, number: int) -> None:
        """The executable's program was loaded as `number`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="distxla-unload", daemon=True)
            self._thread.start()
        weakref.finalize(executable, self._gone.put, number).atexit = False

    def close(self) -> None:
        """Unload nothing any more; blocks while something is being unloaded. Twice is fine."""
        self._gone.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (number := self._gone.get()) is not None:
            self._unload(number)
