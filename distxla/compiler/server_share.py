"""One compile server for all clusters of a process: LLVM takes a second to start, and its process 200 MB."""

from __future__ import annotations

import os
import threading

from distxla.compiler.server import CompileServer


class ServerShare:
    """A share in this process's compile server: the last one that is closed ends it. Thread-safe.

    server: compiles for all that have a share, for one at a time.
    """

    def __init__(self) -> None:
        with _shared.lock:
            _shared.server = _shared.server or CompileServer()
            self.server = _shared.server
            _shared.shares.add(self)

    def close(self) -> None:
        """Give the share back; the last one blocks until the server's process is gone. Twice is fine."""
        with _shared.lock:
            _shared.shares.discard(self)
            if not _shared.shares and self.server is _shared.server:
                self.server.close()
                _shared.server = None


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shares: set[ServerShare] = set()
        self.server: CompileServer | None = None


def _forget() -> None:
    """A forked child has nothing of its parent's."""
    global _shared
    _shared = _Shared()


_shared = _Shared()
os.register_at_fork(after_in_child=_forget)
