"""What the owner of the devices is told when it is started."""

from __future__ import annotations

from distxla.jax.processes.facts import Facts
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class OwnerSettings(Facts):
    """What the owner's cluster is, as of the plugin's settings.

    local: devices of each JAX process.  stall_limit: seconds after which a process that is late is a fault; None:
    never.  host: the address of the interface to listen on.
    """

    local: int
    address: str | None = None
    device_memory: int | str | None = None
    backend: str = "cpu"
    checks: tuple[str, ...] = ()
    stall_limit: float | None = None
    host: str = "127.0.0.1"


__all__ = ["OwnerSettings"]
