"""What the owner's process does (owner_process.py), once all of it is loaded."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distxla.errors import DistxlaError
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.processes.device_names import NamedDevices
from distxla.jax.processes.messages import pack_json
from distxla.jax.processes.news_pipe import NewsPipe
from distxla.jax.processes.owner import Owner
from distxla.jax.processes.owner_file import read_owner
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.said import say
from distxla.jax.processes.told_errors import pack_error


def serve(told: dict[str, Any], stop: Callable[[], bool]) -> int:
    """Serve until the last JAX process is gone, or `stop` says so; the exit status. told: what spawn.py tells."""
    ready: int = told["ready"]
    news = None if told["news"] is None else NewsPipe(told["news"])
    try:
        owner = Owner(
            OwnerSettings.of_json(told["settings"]),
            told["processes"],
            None if news is None else news.tell,
            launched=told["orders"] is not None,
        )
    except DistxlaError as error:
        os.write(ready, pack_json({"error": pack_error(error)}) + b"\n")
        return error.exit_status
    logging.getLogger("distxla").addFilter(NamedDevices(owner.world))
    with suppress(OSError):
        os.write(ready, pack_json({"path": owner.path, "paths": owner.paths, "hosts": _hosts(owner)}) + b"\n")
    os.close(ready)
    if told["orders"] is not None and news is not None:
        threading.Thread(target=_obey, args=(told["orders"], owner, news), name="distxla-orders", daemon=True).start()

    def is_over() -> bool:
        return stop() or (os.getppid() != told["parent"] and owner.give_up(0))

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


def _obey(orders: int, owner: Owner, news: NewsPipe) -> None:
    """Have the processes of other hosts started, if the launcher says so."""
    with os.fdopen(orders) as lines:
        line = lines.readline()
    if not line:
        return
    try:
        told = json.loads(line)
        address, secret = read_owner(told["launcher"])
        owner.machines.start_on_each(told["module"], {"launcher": address, "secret": secret.hex()})
    except Exception as error:
        news.tell({"failed": pack_error(error)})


def _hosts(owner: Owner) -> list[tuple[str, str, int]]:
    """See spawn.OwnerProcess."""
    return [(node.name, node.address, len(processes)) for node, processes in owner.machines.hosts()]


__all__ = ["serve"]
