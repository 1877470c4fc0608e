"""Unloads programs when their executables are destroyed."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from distxla.errors import ClusterError
from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Block
from distxla.machine.shortages import started_thread
from distxla.program.artifact import CompiledProgram

LOGGER = logging.getLogger("distxla")


@dataclass(frozen=True)
class Loaded:
    """A program on its devices. calls: where the offsets of its arguments and results are in the control block."""

    number: int
    program: CompiledProgram
    devices: tuple[int, ...]
    calls: Block
    calls_bytes: int


class Unloader:
    """Calls `unload` with the program of each executable that was destroyed, in a thread of its own: that may happen
    inside any garbage collection, where taking a lock or blocking could deadlock. ClusterError where no thread can be
    started."""

    def __init__(self, unload: Callable[[Loaded], None]) -> None:
        self._unload = unload
        self._gone: queue.SimpleQueue[Loaded | None] = queue.SimpleQueue()
        self._watched: list[weakref.finalize[[Loaded], object]] = []
        thread = threading.Thread(target=self._run, name="distxla-unload", daemon=True)
        self._thread: threading.Thread | None = started_thread(thread, "no programs could be loaded")

    def watch(self, executable: object, loaded: Loaded) -> None:
        """The executable's program was loaded. One for which an interrupt has ended this may be unloaded twice."""
        watching = weakref.finalize(executable, self._gone.put, loaded)
        watching.atexit = False
        self._watched = [*(each for each in self._watched if each.alive), watching]

    def unload_later(self, loaded: Loaded) -> None:
        """Unload a program in the thread: an interrupt has come while that was done."""
        self._gone.put(loaded)

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
        while (loaded := self._gone.get()) is not None:
            try:
                self._unload(loaded)
            except ClusterError:  # Ray was shut down, as at the end of the process, and the replicas ended with it
                pass
            except Exception as error:
                LOGGER.warning("distxla: program %d was not unloaded: %s", loaded.number, error)
