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
        with opened.lock:
            if not opened.servers:
                opened.servers.append(CompileServer())
            opened.shares.add(self)

    def compile(self, module: Module, counts: Counts, options: CompileOptions | None = None) -> CompiledProgram:
        """`CompileServer.compile`, by a server that compiles nothing else if there may be one."""
        call = object()
        try:
            with opened.lock:
                server = opened.calls[call] = self._chosen()
                opened.compiled += 1
            return server.compile(module, counts, options)
        finally:
            opened.calls.pop(call, None)

    @property
    def server(self) -> CompileServer:
        """The one that would compile now; ClusterError after `close`."""
        with opened.lock:
            return self._chosen()

    def _chosen(self) -> CompileServer:
        if self not in opened.shares:
            raise ClusterError("the compile server is closed")
        idle = opened.idle()
        if not idle and len(opened.servers) < len(opened.shares):
            idle = [CompileServer()]
            opened.servers += idle
        return (idle or opened.servers)[0]

    def close(self) -> None:
        """Give the share back, and end servers that are too many; blocks until their processes are gone. Twice is
        fine."""
        with opened.lock:
            opened.shares.discard(self)
            for server in reversed(opened.idle() if opened.shares else list(opened.servers)):
                if len(opened.servers) > len(opened.shares):
                    self._to_end.append(server)
                    opened.servers.remove(server)
        for server in self._to_end:
            server.close()


class OpenServers:
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
    with opened.lock:
        idle = opened.idle()
    if idle:
        with contextlib.suppress(ClusterError, OutOfMemoryError):
            idle[0].start()


def compiled_programs() -> int:
    """How many programs this process has asked servers for."""
    return opened.compiled


def _forget() -> None:
    """A forked child has nothing of its parent's."""
    global opened
    opened = OpenServers()


opened = OpenServers()
os.register_at_fork(after_in_child=_forget)
