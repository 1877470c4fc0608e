"""The owner's process: `python -m distxla.jax.processes.owner_process JSON`, as spawn.py starts it."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from distxla.errors import DistxlaError
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.processes.device_names import NamedDevices
from distxla.jax.processes.messages import pack_json
from distxla.jax.processes.news_pipe import NewsPipe
from distxla.jax.processes.owner import Owner
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.said import say
from distxla.jax.processes.told_errors import pack_error
from distxla.machine.processes import end_with_parent


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
    ready: int = told["ready"]
    news = None if told["news"] is None else NewsPipe(told["news"])
    try:
        owner = Owner(OwnerSettings.of_json(told["settings"]), told["processes"], None if news is None else news.tell)
    except DistxlaError as error:
        os.write(ready, pack_json({"error": pack_error(error)}) + b"\n")
        return error.exit_status
    logging.getLogger("distxla").addFilter(NamedDevices(owner.world))
    with suppress(OSError):
        os.write(ready, pack_json({"path": owner.path, "paths": owner.paths, "hosts": _hosts(owner)}) + b"\n")
    os.close(ready)

    def is_over() -> bool:
        return stops.is_wanted or (os.getppid() != told["parent"] and owner.give_up(0))

    try:
        owner.serve(is_over)
    except DistxlaError as error:
        say(str(error))
        return error.exit_status
    finally:
        SERVER.close()
        if news is not None:
            news.flush()
    return 0


def _hosts(owner: Owner) -> list[tuple[str, str, int]]:
    """See spawn.OwnerProcess."""
    return [(node.name, node.address, len(processes)) for node, processes in owner.machines.hosts()]


if __name__ == "__main__":
    status = main(json.loads(sys.argv[1]))
    sys.stderr.flush()
    os._exit(status)  # threads that wait for processes are not waited for
