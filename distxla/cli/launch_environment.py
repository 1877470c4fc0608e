"""The environment of the processes of `distxla launch`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from distxla.cli.in_process.sitecustomize import FOLDER, PYTHONPATH
from distxla.jax.processes.owner_file import OWNER
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.lazy_dataclass import dataclass

# of a machine or a session: processes of another host have that host's own
_OF_MACHINE: Final = ("HOSTNAME", "TMPDIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS")
_OF_MACHINE_PREFIXES: Final = ("SSH_", "XDG_", "RAY_")


@dataclass(frozen=True)
class LaunchOptions:
    """command: of each process.  settings: of the owner.  environment: for all, beside this process's.  stdin: the
    process that reads this one's; None: none does.  is_stdin_wanted: whether it is an error where that process is on
    another host."""

    command: tuple[str, ...]
    processes: int
    settings: OwnerSettings
    environment: Mapping[str, str]
    stdin: int | None = 0
    is_stdin_wanted: bool = False


def environments(options: LaunchOptions, owner: str, base: Mapping[str, str]) -> list[dict[str, str]]:
    """Of each process, all on this machine. owner: path of the owner's file."""
    host = "127.0.0.1"
    common, own = shared_environments(options, base, f"{host}:{free_port(host)}", [options.processes])
    return [on_this_machine({**common, **one}, owner) for one in own]


def shared_environments(
    options: LaunchOptions, base: Mapping[str, str], coordinator: str, counts: Sequence[int]
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """What all processes have, and what each has for itself, on whatever machine. JAX finds its processes by Open MPI's
    variables: it has none of its own for index and count. coordinator: HOST:PORT of JAX's.  counts: of processes of
    each host."""
    common = {name: value for name, value in base.items() if name != "OMPI_VERSION"}
    common.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # jaxlib's notes on each process's end
    if "distxla" not in common.get("JAX_PLATFORMS", "").split(","):
        common["JAX_PLATFORMS"] = "distxla"
    host, _, port = coordinator.rpartition(":")
    common |= {
        "DISTXLA_DEVICES": str(options.settings.local),
        "DISTXLA_PROCESSES": str(options.processes),
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_COORDINATOR_BIND_ADDRESS": coordinator,  # else JAX listens on all interfaces, and asks for no key
        "OMPI_MCA_orte_hnp_uri": f"4096.0;tcp://{host}:{port}",
        "OMPI_COMM_WORLD_SIZE": str(options.processes),
        "PYTHONUNBUFFERED": "1",
        **options.environment,
    }
    if options.settings.address is not None:
        common["DISTXLA_ADDRESS"] = options.settings.address
    places = [rank for count in counts for rank in range(count)]
    ranks = ("OMPI_COMM_WORLD_RANK", "DISTXLA_PROCESS")
    own = [
        {**dict.fromkeys(ranks, str(process)), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
        for process, rank in enumerate(places)
    ]
    return common, own


def on_this_machine(environment: Mapping[str, str], owner: str) -> dict[str, str]:
    """The environment with what is of this machine. owner: path of the owner's file here."""
    found = {**environment, OWNER: owner}
    if (paths := found.get("PYTHONPATH")) is not None:
        found[PYTHONPATH] = paths
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (FOLDER, paths)))
    return found


def of_machine(name: str) -> bool:
    """Whether a variable says something of a machine or a session there."""
    return name in _OF_MACHINE or name.startswith(_OF_MACHINE_PREFIXES)


def free_port(host: str) -> int:
    """A port of an interface of this machine that nobody uses."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


__all__ = ["LaunchOptions", "environments", "free_port", "of_machine", "on_this_machine", "shared_environments"]
