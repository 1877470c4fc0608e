"""The pipe by which the owner tells a launcher, which may read late: no thread of the owner waits for it."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from typing import Any, Final

from distxla.jax.processes.messages import pack_json

MOST_VERDICTS: Final = 64  # that wait for room in the pipe; all else is told once by each process
FLUSH_S: Final = 1.0


class NewsPipe:
    """Lines of JSON. descriptor: of the pipe's end.

    Lines are written by `tell` itself while the pipe has room, so that a reader has a line before all that follows from
    it, and by a thread of this object otherwise. Safe to be called by several threads.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._changed = threading.Condition()  # guards what follows
        self._begun = memoryview(b"")  # what is left of a line that is partly written
        self._lines: deque[tuple[bool, bytes]] = deque()  # whether it is a verdict
        self._thread: threading.Thread | None = None
        self._is_read = True

    def tell(self, news: dict[str, Any]) -> None:
        """Doesn't block. Without room the oldest verdicts beyond MOST_VERDICTS are left out; nothing is written where
        nobody reads any more."""
        line = pack_json(news) + b"\n"
        with self._changed:
            if not self._is_read:
                return
            self._lines.append(("verdict" in news, line))
            self._write()
            verdicts = [one for one in self._lines if one[0]]
            if len(verdicts) > MOST_VERDICTS:
                self._lines.remove(verdicts[0])
            if self._has_more():
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="distxla-news", daemon=True)
                    self._thread.start()

    def flush(self, seconds: float = FLUSH_S) -> bool:
        """Wait for so long until all is written; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._has_more(), seconds)

    def _has_more(self) -> bool:
        return bool(self._begun or self._lines)

    def _run(self) -> None:
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        while True:
            with self._changed:
                self._changed.wait_for(self._has_more)
            room.poll()
            with self._changed:
                self._write()

    def _write(self) -> None:
        """With the lock: as much as there is room for."""
        try:
            while self._has_more():
                if not self._begun:
                    self._begun = memoryview(self._lines.popleft()[1])
                self._begun = self._begun[os.write(self._descriptor, self._begun) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads any more
            self._is_read, self._begun = False, memoryview(b"")
            self._lines.clear()
        self._changed.notify_all()


__all__ = ["FLUSH_S", "MOST_VERDICTS", "NewsPipe"]
