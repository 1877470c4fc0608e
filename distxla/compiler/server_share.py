"""Compile servers that all clusters of a process share: LLVM takes a second to start, and its process 100 MB."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

from distxla.compiler.server import CompileServer
from distxla.errors import ClusterError, OutOfMemoryError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions


class ServerShare:
    """A cluster's share in this process's compile servers. Thread-safe.

    There is one server, and another one while programs are compiled at once; never more than shares. The last share
    that is closed ends the last server.
    """

    def __init__(self) -> None:
        self._to_end: list[CompileServer] = []  # kept for a `close` after one that was interrupted
        with _open.lock:
            if not _open.servers:
                _open.servers.append(CompileServer())
            _open.shares.add(self)

    def compile(self, module: Module, counts: Counts, options: CompileOptions | None = None) -> CompiledProgram:
        """`CompileServer.compile`, by a server that compiles nothing else if there may be one."""
        call = object()
        try:
            with _open.lock:
                server = _open.calls[call] = self._chosen()
                _open.compiled += 1
            return server.compile(module, counts, options)
        finally:
            _open.calls.pop(call, None)

    @property
    def server(self) -> CompileServer:
        """The one that would compile now; ClusterError after `close`."""
        with _open.lock:
            return self._chosen()

    def _chosen(self) -> CompileServer:
        if self not in _open.shares:
            raise ClusterError("the compile server is closed")
        idle = _open.idle()
        if not idle and len(_open.servers) < len(_open.shares):
            idle = [CompileServer()]
            _open.servers += idle
        return (idle or _open.servers)[0]

    def close(self) -> None:
        """Give the share back, and end servers that are too many; blocks until their processes are gone. Twice is
        fine."""
        with _open.lock:
            _open.shares.discard(self)
            for server in reversed(_open.idle() if _open.shares else list(_open.servers)):
                if len(_open.servers) > len(_open.shares):
                    self._to_end.append(server)
                    _open.servers.remove(server)
        for server in self._to_end:
            server.close()


class _Open:
    """calls: those that compile now, with their servers.  compiled: how many there were."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shares: weakref.WeakSet[ServerShare] = weakref.WeakSet()
        self.servers: list[CompileServer] = []
        self.calls: dict[object, CompileServer] = {}
        self.compiled = 0

    def idle(self) -> list[CompileServer]:
        return [server for server in self.servers if server not in self.calls.values()]


def start_server() -> None:
    """Begin to start the process of a server that compiles nothing now, for a program that will be compiled; nothing
    where this process has no share. A process that cannot be started is an error of the compilation that needs it."""
    with _open.lock:
        idle = _open.idle()
    if idle:
        with contextlib.suppress(ClusterError, OutOfMemoryError):
            idle[0].start()


def compiled_programs() -> int:
    """How many programs this process has asked servers for."""
    return _open.compiled


def _forget() -> None:
    """A forked child has nothing of its parent's."""
    global _open
    _open = _Open()


_open = _Open()
os.register_at_fork(after_in_child=_forget)
