"""Starts the owner, a process of its own, which neither this process nor a terminal's signals end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from distxla.errors import ClusterError
from distxla.jax.processes.owner_file import OWNER
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.told_errors import unpack_error
from distxla.machine.processes import is_readable
from distxla.machine.shortages import not_started

START_S: Final = 60.0
_MOST: Final = 1 << 16
_children: list[subprocess.Popen[bytes]] = []  # owners outlive the objects that started them


class OwnerProcess(NamedTuple):
    """path: of the file that tells processes of this machine where it listens (owner_file.py).  paths: of those of all
    machines, by machine.  hosts: (name, address, number of processes) of each host, this one first, with a launcher and
    an address.
    """

    path: str
    pid: int
    process: subprocess.Popen[bytes]
    paths: dict[str, str]
    hosts: list[tuple[str, str, int]]


def spawn_owner(
    processes: int, settings: OwnerSettings, *, guarded: bool, news: int | None = None, orders: int | None = None
) -> OwnerProcess:
    """Start the owner of the devices of so many JAX processes; blocks until it listens, not until its devices serve.

    guarded: it ends with the thread that starts it; else with the last JAX process.  news: a descriptor to which it
    writes a line of JSON for each thing that it tells a launcher.  orders: a descriptor from which it reads a line of a
    launcher's, of the processes that it is to have started on other hosts. ClusterError where it can't be started.
    """
    read, write = os.pipe()
    told = {
        "processes": processes,
        "settings": settings.to_json(),
        "ready": write,
        "news": news,
        "orders": orders,
        "guarded": guarded,
        "parent": os.getpid(),
    }
    paths = [str(Path(__file__).resolve().parents[3]), *filter(None, sys.path)]
    environment = {name: value for name, value in os.environ.items() if name != OWNER}
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "distxla.jax.processes.owner_process", json.dumps(told)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what it says is no result of a script
                pass_fds=[write, *(one for one in (news, orders) if one is not None)],
                env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        except OSError as error:
            raise not_started("the process that owns the devices cannot be started", error) from error
        finally:
            os.close(write)
        _children.append(process)
        ready = _ready(read, process)
        hosts = [(str(name), str(address), int(count)) for name, address, count in ready.get("hosts", ())]
        return OwnerProcess(str(ready["path"]), process.pid, process, dict(ready["paths"]), hosts)
    finally:
        os.close(read)


def _ready(ready: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the owner says once it listens: a line of JSON."""
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(ready, _MOST) if is_readable(ready, START_S) else b""
        if not part:
            break
        data += part
    with suppress(ValueError, TypeError, KeyError):
        told = json.loads(data)
        if "error" in told:
            process.wait()
            raise unpack_error(told["error"])
        return {"path": told["path"], "paths": told["paths"], "hosts": told["hosts"]}
    if process.poll() is None and not is_readable(ready, 0):
        process.kill()
        raise ClusterError(f"the process that owns the devices did not listen within {START_S:g} s")
    status = process.wait()
    how = f"signal {-status}" if status < 0 else f"status {status}"
    raise ClusterError(f"the process that owns the devices could not be started: it ended with {how}")


__all__ = ["OwnerProcess", "OwnerSettings", "spawn_owner"]
