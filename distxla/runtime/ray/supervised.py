"""The driver's side of the supervisor (supervisor.py), which starts the processes of an embedded Ray and ends them."""

from __future__ import annotations

import marshal
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from distxla.errors import ClusterError
from distxla.machine.processes import descriptor_of, is_readable, send_signal
from distxla.machine.shortages import load, of_error
from distxla.runtime.ray.spawn import spawn_supervisor
from distxla.runtime.ray.supervisor import SIZE_BYTES

ANSWER_S = 30.0  # for the supervisor to start a process
CLOSE_S = 15.0  # for it to end all processes
LONGEST_SOCKET_PATH = 107  # bytes, of a Unix socket's address
_SETTINGS = {  # of every process
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 stays 127.0.0.1
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # see client.join
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # older versions hide GPUs from actors that ask Ray for none
    # the raylet connects to a socket that a thread of it is still opening: a second, and 10 tries, by default
    "RAY_raylet_client_connect_timeout_milliseconds": "5",
    "RAY_raylet_client_num_connect_attempts": "2000",
    # added to the driver's; Ray's own 15 would let replicas run after everything else on the machine
    "RAY_worker_niceness": "0",
}


class Supervised:
    """A supervisor, and the processes that it has started. process: the supervisor itself.

    directory: a new one of this user alone, which is removed with the processes.  ClusterError if there can be none, if
    the supervisor cannot be started or, from `hold` and `run`, has ended.
    """

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """process: a supervisor that is to be used, of `spawn_supervisor`."""
        self.directory = _private_directory()
        self._ends: dict[str, int] = {}  # process descriptors by name
        try:
            self.process = spawn_supervisor() if process is None else process
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise ClusterError(f"the embedded Ray cannot be started: {error.strerror}") from error
        try:
            self._ends["supervisor"] = descriptor_of(self.process.pid)
            # machine.py may have raised this process's limit since it started the supervisor
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
            self._send({"directory": self.directory})
        except OSError as error:
            self.close()
            raise ClusterError(f"the embedded Ray cannot be started: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> list[str]:
        """Names of the supervisor and of all processes, in the order in which they were started."""
        return list(self._ends)

    def hold(self, name: str) -> int:
        """Start a process that waits for its command; returns its id. Blocks until it exists.

        Raises ClusterError, with the reason, where there can be none.
        """
        self._send({"hold": True})
        assert self.process.stdout is not None
        if not is_readable(self.process.stdout.fileno(), ANSWER_S):
            raise ClusterError(
                f"the supervisor of the embedded Ray did not start the {name} within {ANSWER_S:g} s; {load()}"
            )
        answer = self.process.stdout.readline()
        what = f"could not start the {name} of the embedded Ray"
        try:
            number = int(answer)
        except ValueError:
            raise ClusterError(f"{what}: its supervisor has ended") from None
        if number < 0:
            raise ClusterError(f"{what}: {of_error(-number) or os.strerror(-number)}")
        try:
            self._ends[name] = descriptor_of(number)
        except OSError as error:
            raise ClusterError(f"{what}: {of_error(error.errno or 0) or error.strerror}") from None
        return number

    def run(self, process: int, command: list[str], environment: Mapping[str, str], **more: str) -> None:
        """Give a process of `hold` its command. more: see supervisor.py."""
        theirs = {**environment, **_SETTINGS}
        theirs.pop("RAY_ADDRESS", None)
        self._send({"pid": process, "command": command, "environment": theirs, **more})

    def has_ended(self, name: str) -> bool:
        """Whether a process has ended, as all have after `close`; does not wait."""
        return name not in self._ends or is_readable(self._ends[name])

    def kill(self, name: str) -> None:
        """End a process of `hold`, if there is one of this name; does not wait."""
        if name in self._ends:
            send_signal(self._ends[name], signal.SIGKILL)

    def release(self) -> None:
        """Let the supervisor end all processes and itself; does not wait."""
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended before it took the last request, which is written again here
            self.process.stdin.close()

    def close(self) -> None:
        """End all processes and remove the directory; blocks. Never raises."""
        self.release()
        if "supervisor" in self._ends:  # a forked child may have a copy of its standard input
            send_signal(self._ends["supervisor"], signal.SIGTERM)
        # `wait` with a limit looks after pauses of up to 0.05 s
        if "supervisor" not in self._ends or not is_readable(self._ends["supervisor"], CLOSE_S):
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for descriptor in self._ends.values():
            os.close(descriptor)
        self._ends.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _send(self, request: dict[str, object]) -> None:
        assert self.process.stdin is not None
        try:
            data = marshal.dumps(request)
            self.process.stdin.write(len(data).to_bytes(SIZE_BYTES, "little") + data)
            self.process.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: after `release`
            raise ClusterError(f"the supervisor of the embedded Ray has ended: {error}") from error


def _private_directory() -> str:
    """A new directory with a path that leaves room for the names of sockets."""
    room = LONGEST_SOCKET_PATH - len("/distxla-01234567/t/s/sockets/plasma")
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > room:
        parent = "/tmp"
    try:
        return tempfile.mkdtemp(prefix="distxla-", dir=parent)
    except OSError as error:
        raise ClusterError(f"the embedded Ray needs a directory in {parent}: {error.strerror}") from error


__all__ = ["Supervised"]
