"""An embedded Ray started by `ray.init`, for versions whose servers distxla does not start itself (versions.py).

It listens on the loopback interface only, has a private directory, and asks for a token if its version has tokens.
`ray.init` runs in a process of its own (plain_server.py) under the supervisor, which also runs the servers that distxla
starts itself: it ends all processes when the driver ends, however it ends.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

from distxla import clock
from distxla.errors import ClusterError
from distxla.location import printable
from distxla.machine.shortages import load
from distxla.runtime.ray import client, commands, versions
from distxla.runtime.ray.session import RayHere, Session
from distxla.runtime.ray.supervised import Supervised
from distxla.runtime.ray.token import Token

LOGGER = logging.getLogger("distxla")
START_LIMIT_S = 120.0

_told = False


class PlainRay:
    """A Ray started by `ray.init` for this process. Blocking: `start` takes some seconds, `close` about one."""

    def __init__(self) -> None:
        self.session: Session = RayHere()
        self._token = Token()
        self._printer: Any = None
        self._supervisor = Supervised()

    def start(self, workers: int, closing: threading.Event) -> None:
        """Start Ray and join it; the logger `distxla` warns of the disadvantages, once a process.

        closing: to be set to make it give up. Raises ClusterError with Ray's reason if it does not come up.
        """
        version, private = versions.installed(), self._supervisor.directory
        directory, file = os.path.join(private, "t"), os.path.join(private, "address")
        os.mkdir(directory, 0o700)  # Ray opens it to all users, so it is inside a private one
        script = str(Path(__file__).with_name("plain_server.py"))
        arguments = [directory, file, str(max(os.cpu_count() or 1, workers)), str(commands.OBJECT_STORE_BYTES)]
        process = self._supervisor.hold("server")
        command = [sys.executable, "-P", script, *arguments]
        self._supervisor.run(process, command, self._token.environment(), errors=self._errors)
        self._token.hold()
        tokens = client.reread_environment() is not None
        _tell(versions.what_is_lost(version, tokens=tokens))
        end = clock.now() + START_LIMIT_S
        while not os.path.exists(file):
            if closing.is_set():
                raise ClusterError("the cluster is closed")
            if self._supervisor.has_ended("server") or clock.now() > end:
                raise ClusterError(f"Ray {version} could not be started: {self._last_message()}")
            clock.sleep(0.01)
        try:
            self._printer = client.join(Path(file).read_text())
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"Ray {version} was started and cannot be joined: {error}") from error

    @property
    def _errors(self) -> str:
        return os.path.join(self._supervisor.directory, "errors")

    def _last_message(self) -> str:
        try:
            lines = Path(self._errors).read_text(errors="replace").split("\n")
        except OSError:
            lines = []
        return next(
            (line for line in reversed(lines) if line.strip()), f"it took more than {START_LIMIT_S:g} s; {load()}"
        )

    @property
    def is_alive(self) -> bool:
        """True: a process joins one Ray, which Ray itself watches."""
        return True

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
        self._supervisor.close()
        self._token.forget()


def _tell(text: str) -> None:
    global _told
    if not _told:
        _told = True
        LOGGER.warning("%s", printable(f"distxla: {text}"))
