"""What the owner of the devices is told when it is started."""

from __future__ import annotations

from typing import Final

from distxla.errors import ClusterError
from distxla.jax.processes.facts import Facts
from distxla.jax.processes.world import Introduction
from distxla.lazy_dataclass import dataclass
from distxla.runtime.hosts.budget import checked_memory

_HINTS: Final = {
    "address": "",
    "device_memory": ": set DISTXLA_DEVICE_MEMORY in the launcher's environment, not in the script",
    "backend": ": set DISTXLA_BACKEND in the launcher's environment, not in the script",
}


@dataclass(frozen=True)
class OwnerSettings(Facts):
    """What the owner's cluster is, as of the plugin's settings.

    local: devices of each JAX process.  stall_limit: seconds after which a process that is late is a fault; None:
    never.  host: the address of the interface to listen on, where there is no address of a Ray.  processes_per_host: of
    each node of the Ray, the owner's first, where a launcher starts them; None: equally many.
    """

    local: int
    address: str | None = None
    device_memory: int | str | None = None
    backend: str = "cpu"
    checks: tuple[str, ...] = ()
    stall_limit: float | None = None
    host: str = "127.0.0.1"
    processes_per_host: tuple[int, ...] | None = None

    def require_those_of(self, all_of_them: Introduction) -> None:
        """ClusterError where the processes, which are equal, have settings of a cluster that the owner was not started
        with: `distxla launch` starts it before any script runs."""
        for name, hint in _HINTS.items():
            own, theirs = getattr(self, name), getattr(all_of_them, name)
            is_equal = checked_memory(own) == checked_memory(theirs) if name == "device_memory" else own == theirs
            if not is_equal:
                raise ClusterError(
                    f"the processes have {name}={theirs!r}, and the owner of the devices was started with {own!r}{hint}"
                )


__all__ = ["OwnerSettings"]
