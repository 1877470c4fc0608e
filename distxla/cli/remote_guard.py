"""On another host than the launcher's: starts the processes there, hands on what they write, and ends them when the
connection to the launcher does, however that ended.

Run as `python -m distxla.cli.remote_guard` by an actor (jax/processes/keeper.py), which it outlives. Stdin has JSON
{"launcher": [host, port], "secret", "host": its index, "address": of its interface, "owner": {"address", "secret"}}.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from distxla.cli.guarded_processes import Guarded, GuardedProcesses
from distxla.cli.launch_environment import free_port, of_machine, on_this_machine
from distxla.cli.launch_frames import LARGEST, LAUNCH_FRAMES, Here, Line, Output, Report, Start, Taken
from distxla.errors import ArgumentError, ClusterError, DistxlaError
from distxla.jax.processes.keeper import READY
from distxla.jax.processes.owner_file import OwnerFile
from distxla.machine.processes import adopt_orphans, let_be_killed_as_others
from distxla.runtime.ray.supervisor import kill_descendants
from distxla.wire.connection import Connection
from distxla.wire.handshake import connect
from distxla.wire.network import ANSWER_S

AHEAD: Final = 1 << 20  # bytes of output that the launcher has not written yet
_MOST: Final = 1 << 16
_JOBS: Final = "/runtime_resources/working_dir_files/"  # where Ray puts the files of a job, below its own folder
_LAUNCHERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class RemoteGuard:
    """owner: the file that tells processes here of the owner."""

    def __init__(self, connection: Connection, owner: OwnerFile) -> None:
        self._connection, self._owner = connection, owner
        self._room = threading.Condition()  # guards what follows
        self._ahead = 0  # bytes that were sent, and are not taken
        self._is_over = False
        self._guarded: GuardedProcesses | None = None
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Until the launcher is gone, or all processes are."""
        try:
            while True:
                frame = self._connection.receive()
                payload = self._connection.receive_bytes()
                if isinstance(frame, Start):
                    self._start(json.loads(payload))
                elif isinstance(frame, Line) and self._guarded is not None:
                    self._guarded.tell(payload.decode())
                elif isinstance(frame, Taken):
                    with self._room:
                        self._ahead -= frame.bytes
                        self._room.notify_all()
        except ClusterError:
            return
        finally:
            with self._room:
                self._is_over = True
                self._room.notify_all()
            if self._guarded is not None:
                self._guarded.close()
            kill_descendants()

    def _start(self, told: dict[str, Any]) -> None:
        try:
            folder = folder_of(told["folder"], os.getcwd())
            here = {name: value for name, value in os.environ.items() if of_machine(name)}
            common = {**{name: value for name, value in told["environment"].items() if not of_machine(name)}, **here}
            processes = [
                Guarded(one["process"], on_this_machine({**common, **one["environment"]}, self._owner.path))
                for one in told["processes"]
            ]
            self._guarded = guarded = GuardedProcesses(told["command"], processes, folder)
        except DistxlaError as error:
            self._report(json.dumps({"error": error.message}).encode() + b"\n")
            return
        for target in (self._hand_on_outputs, self._hand_on_report):
            thread = threading.Thread(target=target, args=(guarded,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _hand_on_outputs(self, guarded: GuardedProcesses) -> None:
        outputs = {descriptor: (process, is_error) for process, is_error, descriptor in guarded.outputs}
        poll = select.poll()
        for descriptor in outputs:
            poll.register(descriptor, select.POLLIN)
        while outputs:
            for descriptor, _ in poll.poll():
                data = os.read(descriptor, _MOST)
                process, is_error = outputs[descriptor]
                with self._room:
                    self._room.wait_for(lambda: self._ahead < AHEAD or self._is_over)
                    if self._is_over:
                        return
                    self._ahead += len(data)
                with suppress(ClusterError):
                    self._connection.send(Output(process, int(is_error)), [data])
                if not data:
                    poll.unregister(descriptor)
                    del outputs[descriptor]

    def _hand_on_report(self, guarded: GuardedProcesses) -> None:
        while data := os.read(guarded.report, _MOST):
            self._report(data)
        guarded.close()
        kill_descendants()
        self._threads[0].join()  # what they have written is sent
        self._report(b"")
        self._connection.close()

    def _report(self, data: bytes) -> None:
        with suppress(ClusterError):
            self._connection.send(Report(), [data])


def folder_of(wanted: str, own: str) -> str:
    """The working directory here. wanted: that of the launcher, on its host.  own: of this process, which is that of
    the files of Ray's job if there is one. ArgumentError where there is none."""
    if os.path.isdir(wanted):
        return wanted
    _, is_job, inside = wanted.partition(_JOBS)
    folder, is_here, _ = own.partition(_JOBS)
    if is_job and is_here and os.path.isdir(found := f"{folder}{_JOBS}{inside}"):
        return found
    raise ArgumentError(f"there is no folder {wanted} there: the working directory must be the same on all hosts")


def main() -> None:
    told = json.load(sys.stdin)
    for number in _LAUNCHERS:
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    let_be_killed_as_others()  # Ray lets its workers, and what they start, be killed first
    try:
        connection = connect(
            tuple(told["launcher"]),
            bytes.fromhex(told["secret"]),
            frames=LAUNCH_FRAMES,
            node=told["host"],
            largest=LARGEST,
        )
        connection.require_answers(ANSWER_S)
        owner = OwnerFile(tuple(told["owner"]["address"]), bytes.fromhex(told["owner"]["secret"]))
        connection.send(Here(), [json.dumps({"port": free_port(told["address"])}).encode()])
    except (DistxlaError, OSError) as error:
        os.write(1, f"{error}\n".encode())
        return
    os.write(1, READY)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    RemoteGuard(connection, owner).run()


if __name__ == "__main__":
    main()
    os._exit(0)
