"""An embedded Ray started by `ray.init`, for versions whose servers distxla does not start itself (versions.py).

It listens on the loopback interface only, has a private directory, and asks for a token if its version has tokens.
`ray.init` runs in a process of its own (plain_server.py) under the supervisor, which also runs the servers that distxla
starts itself: it ends all processes when the driver ends, however it ends.
"""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from distxla.errors import ClusterError, printable
from distxla.runtime.ray import client, commands, versions
from distxla.runtime.ray.embedded import private_directory
from distxla.runtime.ray.session import RayHere, Session
from distxla.runtime.ray.token import Token

LOGGER = logging.getLogger("distxla")
START_LIMIT_S = 120.0
_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 stays 127.0.0.1
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}

_told = False


class PlainRay:
    """A Ray started by `ray.init` for this process. Blocking: `start` takes some seconds, `close` about one."""

    def __init__(self) -> None:
        self.session: Session = RayHere()
        self._private = private_directory()
        self._token = Token()
        self._printer: Any = None
        self._server = -1  # a process descriptor
        try:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal is the driver's alone
            )
        except OSError as error:
            shutil.rmtree(self._private, ignore_errors=True)
            raise ClusterError(f"Ray cannot be started: {error.strerror}") from error
        self._send({"directory": self._private})

    def start(self, workers: int) -> None:
        """Start Ray and join it; the logger `distxla` warns of the disadvantages, once a process.

        Raises ClusterError with Ray's reason if it does not come up.
        """
        version = versions.installed()
        directory, file = os.path.join(self._private, "t"), os.path.join(self._private, "address")
        os.mkdir(directory, 0o700)  # Ray opens it to everybody: hence one above it
        self._run(directory, file, str(max(os.cpu_count() or 1, workers)), str(commands.OBJECT_STORE_BYTES))
        self._token.hold()
        tokens = client.reread_environment() is not None
        _tell(versions.what_is_lost(version, tokens=tokens))
        end = time.monotonic() + START_LIMIT_S
        while not os.path.exists(file):
            if select.select([self._server], [], [], 0.01)[0] or time.monotonic() > end:
                raise ClusterError(f"Ray {version} could not be started: {self._last_words()}")
        try:
            self._printer = client.join(Path(file).read_text())
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"Ray {version} was started and cannot be joined: {error}") from error

    def _send(self, request: dict[str, object]) -> None:
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
            self._supervisor.stdin.flush()
        except OSError as error:
            raise ClusterError(f"the supervisor of Ray has ended: {error}") from error

    def _run(self, *arguments: str) -> None:
        self._send({"hold": True})
        assert self._supervisor.stdout is not None
        answer = self._supervisor.stdout.readline()
        try:
            self._server = os.pidfd_open(int(answer))
        except (ValueError, ProcessLookupError):
            raise ClusterError("could not start the process of Ray") from None
        environment = self._token.environment() | _SETTINGS
        environment.pop("RAY_ADDRESS", None)
        script = str(Path(__file__).with_name("plain_server.py"))
        command = [sys.executable, "-P", script, *arguments]
        self._send({"pid": int(answer), "command": command, "environment": environment, "errors": self._errors})

    @property
    def _errors(self) -> str:
        return os.path.join(self._private, "errors")

    def _last_words(self) -> str:
        try:
            lines = Path(self._errors).read_text(errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line for line in reversed(lines) if line.strip()), f"it took more than {START_LIMIT_S:g} s")

    def started(self) -> None:
        """See EmbeddedRay."""

    def begin(self) -> None:
        """Does nothing: Ray watches its own processes."""

    def require_progress(self, answers: int) -> None:
        """Does nothing: the progress of starting workers is not known."""

    def close(self) -> None:
        """Leave Ray, end its processes, remove the directory. Never raises."""
        ray: Any = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():
            ray.shutdown()
        if self._printer is not None:
            ray._private.worker.print_to_stdstream = self._printer
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(15)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor.stdout.close()
        if self._server >= 0:
            os.close(self._server)
        shutil.rmtree(self._private, ignore_errors=True)
        self._token.forget()


def _tell(text: str) -> None:
    global _told
    if not _told:
        _told = True
        LOGGER.warning("%s", printable(f"distxla: {text}"))
