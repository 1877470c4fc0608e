"""One compile server for all clusters of a process: LLVM takes a second to start, and its process 100 MB."""

from __future__ import annotations

import os
import threading
import weakref

from distxla.compiler.server import CompileServer


class ServerShare:
    """A share in this process's compile server: the last one that is closed ends it. Thread-safe.

    server: compiles for all that have a share, for one at a time.
    """

    def __init__(self) -> None:
        with _open.lock:
            self.server: CompileServer = next((share.server for share in _open.shares), None) or CompileServer()
            _open.shares.add(self)

    def close(self) -> None:
        """Give the share back; the last one blocks until the server's process is gone. Twice is fine."""
        with _open.lock:
            _open.shares.discard(self)
            is_last = all(share.server is not self.server for share in _open.shares)
        if is_last:
            self.server.close()


class _Open:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shares: weakref.WeakSet[ServerShare] = weakref.WeakSet()


def _forget() -> None:
    """A forked child has nothing of its parent's."""
    global _open
    _open = _Open()


_open = _Open()
os.register_at_fork(after_in_child=_forget)
