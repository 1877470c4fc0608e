"""The processes of a launch on other hosts: their guards there connect to the launcher, which sees them as pipes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from distxla.cli.launch_frames import LARGEST, LAUNCH_FRAMES, Here, Line, Output, Report, Start, Taken
from distxla.errors import ClusterError
from distxla.jax.processes.owner_file import OwnerFile
from distxla.wire.connection import Connection
from distxla.wire.handshake import Listener, new_secret
from distxla.wire.network import ANSWER_S

MODULE: Final = "distxla.cli.remote_guard"
END_S: Final = 5.0  # for a guard to end its processes


class OtherHost:
    """A host. index: of the cluster.  name: for messages.  processes: those that it has.

    report: a descriptor with lines of JSON as launch_guard.py gives them; at its end nothing is left of the processes,
    or the host is lost.  outputs: (process, whether it is stderr, descriptor).  port: of the host, that nobody uses.
    """

    def __init__(self, index: int, name: str, processes: range) -> None:
        self.index, self.name, self.processes = index, name, processes
        self.port: int | None = None
        self.is_lost = False
        self.report, self._to_report = os.pipe()
        self.outputs: list[tuple[int, bool, int]] = []
        self._ends: dict[tuple[int, bool], int] = {}
        for process in processes:
            for is_error in (False, True):
                read, self._ends[process, is_error] = os.pipe()
                self.outputs.append((process, is_error, read))
        self._connection: Connection | None = None
        self._is_over = threading.Event()

    def serve(self, connection: Connection) -> None:
        """Take what the guard tells, until it ends; in a thread of the connection's."""
        self._connection = connection
        connection.require_answers(ANSWER_S)
        is_whole = False
        try:
            while True:
                frame = connection.receive()
                payload = connection.receive_bytes()
                if isinstance(frame, Here):
                    self.port = int(json.loads(payload)["port"])
                elif isinstance(frame, Report):
                    is_whole = not payload
                    _write(self._to_report, payload)
                elif isinstance(frame, Output):
                    self._put(frame, payload)
                    connection.send(Taken(len(payload)))
        except ClusterError:
            self.is_lost = not is_whole
        finally:
            connection.close()
            for end in (self._to_report, *self._ends.values()):
                os.close(end)
            self._is_over.set()

    def _put(self, frame: Output, payload: bytearray) -> None:
        key = frame.process, bool(frame.is_error)
        if payload:
            _write(self._ends[key], payload)
        elif key in self._ends:
            os.close(self._ends.pop(key))

    def start(
        self, folder: str, command: Sequence[str], environment: Mapping[str, str], own: Sequence[Mapping[str, str]]
    ) -> None:
        """Start the processes. folder: the launcher's working directory.  environment: of all.  own: of each beside, by
        process."""
        processes = [{"process": process, "environment": own[process]} for process in self.processes]
        told = {"folder": folder, "command": command, "environment": environment, "processes": processes}
        self._send(Start(), json.dumps(told).encode())

    def tell(self, line: str) -> None:
        """A line for the guard; nothing happens where it is gone."""
        self._send(Line(), line.encode())

    def _send(self, frame: Start | Line, payload: bytes) -> None:
        with suppress(ClusterError):
            if self._connection is not None:
                self._connection.send(frame, [payload])

    def close(self) -> None:
        """End what is left there. Blocks until it is, for at most END_S."""
        if self._connection is None:
            return
        self.tell("kill")
        self._is_over.wait(END_S)
        self._connection.close()
        self._is_over.wait(END_S)


class OtherHosts:
    """The hosts but for the launcher's. address: of the launcher's interface.  path: of the file that tells where it
    listens for their guards."""

    def __init__(self, address: str, hosts: Sequence[OtherHost]) -> None:
        self.all = list(hosts)
        self._by_index = {host.index: host for host in hosts}
        secret = new_secret()
        self._listener = Listener(
            address,
            secret,
            self._on_connection,
            frames=LAUNCH_FRAMES,
            node=0,
            peers=len(hosts),
            largest=LARGEST,
        )
        self._file = OwnerFile(self._listener.address, secret)
        self.path = self._file.path

    def _on_connection(self, connection: Connection) -> None:
        host = self._by_index.pop(connection.node, None)
        if host is None:
            connection.close()
            return
        host.serve(connection)

    @property
    def are_here(self) -> bool:
        """Whether all have connected."""
        return all(host.port is not None for host in self.all)

    def close(self) -> None:
        """End all that is left; blocks for END_S at most, for those that answer."""
        self._listener.close()
        self._file.close()
        for host in self.all:
            host.tell("kill")
        for host in self.all:
            host.close()


def order_of(path: str) -> dict[str, Any]:
    """What the owner is told, to have the guards started."""
    return {"module": MODULE, "launcher": path}


def _write(descriptor: int, data: bytes | bytearray) -> None:
    rest = memoryview(data)
    with suppress(BrokenPipeError):  # the launcher takes no more
        while rest:
            rest = rest[os.write(descriptor, rest) :]


__all__ = ["OtherHost", "OtherHosts", "order_of"]
