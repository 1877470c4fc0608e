"""The owner's process: `python -m distxla.jax.processes.owner_process JSON`, as spawn.py starts it."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from distxla.machine.processes import end_with_parent
from distxla.runtime.ray.ahead import begin_ray


class _Stops:
    """Whether the owner was told to end."""

    def __init__(self) -> None:
        self.is_wanted = False

    def want(self, *_: object) -> None:
        self.is_wanted = True


def main(told: dict[str, Any]) -> int:
    """Serve until the last JAX process is gone; the exit status."""
    stops = _Stops()
    signal.signal(signal.SIGTERM, stops.want)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if told["guarded"]:
        end_with_parent()
        if os.getppid() != told["parent"]:
            return 1
    settings = told["settings"]
    if settings["address"] is None and settings["backend"] == "cpu":
        begin_ray()
    from distxla.jax.processes.owner_service import serve  # while Ray starts

    return serve(told, lambda: stops.is_wanted)


if __name__ == "__main__":
    status = main(json.loads(sys.argv[1]))
    sys.stderr.flush()
    os._exit(status)  # threads that wait for processes are not waited for
