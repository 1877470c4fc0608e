"""A Ray of our own by `ray.init`, where the servers of its version have not been tested (versions.py).

It listens on the loopback interface only, has a private directory, and asks for a token if its version has tokens. Ray
takes its processes down when the driver ends, however it ends.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distxla.errors import ClusterError, printable
from distxla.runtime.ray import client, commands, versions
from distxla.runtime.ray.embedded import private_directory
from distxla.runtime.ray.session import RayHere, Session
from distxla.runtime.ray.token import Token

LOGGER = logging.getLogger("distxla")
_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 stays 127.0.0.1
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # without it some versions warn
}

_told = False


class PlainRay:
    """What `ray.init` has started for this process. Blocking: `start` takes some seconds, `close` about one."""

    def __init__(self) -> None:
        self.session: Session = RayHere()
        self._private = private_directory()
        self._token = Token()
        self._printer: Any = None
        self._name = "Ray"
        self._failure: BaseException | None = None
        self._tried, self._closed = threading.Event(), threading.Event()

    def start(self, workers: int) -> None:
        """Start Ray and join it; a line of the logger `distxla` says, once a process, what is lost.

        Raises ClusterError with Ray's reason if it does not come up.
        """
        directory = os.path.join(self._private, "t")  # Ray opens it to everybody: hence one above it
        os.mkdir(directory, 0o700)
        self._token.hold()
        keeper = threading.Thread(target=self._keep, args=(directory, workers), name="distxla-ray", daemon=True)
        keeper.start()
        self._tried.wait()
        if self._failure is not None:
            raise ClusterError(f"{self._name} could not be started: {self._failure}") from self._failure

    def _keep(self, directory: str, workers: int) -> None:
        """Start Ray in a thread that stays until `close`: the kernel ends Ray's processes with the thread that started
        them, as Ray has asked it to."""
        try:
            self._init(directory, workers)
        except BaseException as error:  # Ray has many, and ends the thread where it means the process
            self._failure = error
        finally:
            self._tried.set()
        self._closed.wait()

    def _init(self, directory: str, workers: int) -> None:
        with _settings():
            import ray

            self._name = f"Ray {ray.__version__}"
            tokens = client.reread_environment() is not None
            _tell(versions.what_is_lost(ray.__version__, tokens=tokens))
            self._printer = client.join(
                "local",  # not what RAY_ADDRESS says
                num_cpus=max(os.cpu_count() or 1, workers),
                num_gpus=0,
                object_store_memory=commands.OBJECT_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address=commands.LOOPBACK,
                _temp_dir=directory,
            )

    def started(self) -> None:
        """See EmbeddedRay."""

    def begin(self) -> None:
        """Nothing to take note of: Ray watches its own processes."""

    def require_progress(self, answers: int) -> None:
        """Nothing is known of workers that are still starting."""

    def close(self) -> None:
        """End Ray, remove the directory. Never raises."""
        ray: Any = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():
            ray.shutdown()
        if self._printer is not None:
            ray._private.worker.print_to_stdstream = self._printer
        self._closed.set()
        shutil.rmtree(self._private, ignore_errors=True)
        self._token.forget()


@contextmanager
def _settings() -> Iterator[None]:
    """Within, this process's environment, which Ray's processes inherit, has the settings."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _tell(text: str) -> None:
    global _told
    if not _told:
        _told = True
        LOGGER.warning("%s", printable(f"distxla: {text}"))
