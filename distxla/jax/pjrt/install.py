"""The plugin without environment variables: `distxla.jax.install(partitions=8)`."""

from __future__ import annotations

from collections.abc import Iterable

from distxla.errors import JaxError
from distxla.jax.private.backends import are_backends_initialized, set_platforms
from distxla.runtime.checks.checks import checks_of
from distxla.runtime.hosts.budget import checked_memory
from distxla.runtime.hosts.nodes import checked_size
from distxla.runtime.ray.versions import require_run
from distxla.targets.registry import target_of_backend


def install(
    partitions: int | None = None,
    *,
    address: str | None = None,
    device_memory: int | str | None = None,
    backend: str = "cpu",
    check: str | Iterable[str] = (),
) -> None:
    """Let JAX run on distxla's devices from now on, as JAX_PLATFORMS=distxla does; nothing starts before JAX is used.

    partitions: the number of devices; None for DISTXLA_DEVICES, else the number of CPU devices in JAX's settings when
    devices are used first, else 8.  address, device_memory, backend: as of `Cluster`.  check: "nan", "replication" or
    both, of each call of every program (docs/guide/checked_runs.md); by default DISTXLA_CHECK. Does not block. JaxError
    where JAX has made its devices already, and where jaxlib is missing or of another version; ArgumentError for bad
    counts and checks, and for a backend that this machine doesn't have; ClusterError where the extra `distxla[run]` is
    not installed.
    """
    require_run("JAX on distxla's devices")
    from distxla.jax.pjrt.client import Settings, checks_of_environment, devices_of_environment, use
    from distxla.jax.pjrt.plugin import NAME, register

    if partitions is not None:
        checked_size(1, partitions)
    checked_memory(device_memory)
    target_of_backend(backend)
    checks = checks_of(check) or checks_of_environment()
    if are_backends_initialized():
        raise JaxError("JAX has its devices already: call distxla.jax.install before anything that uses them")
    use(lambda: Settings(partitions or devices_of_environment(), address, device_memory, backend, checks))
    register()
    set_platforms(NAME)


__all__ = ["install"]
