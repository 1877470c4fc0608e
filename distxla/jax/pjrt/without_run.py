"""The plugin where the devices can't run here: the extra `distxla[run]` is not installed."""

from __future__ import annotations

from distxla.errors import JaxError
from distxla.jax.private.backends import wanted_platforms
from distxla.machine.extras import unmet


def initialize() -> None:
    """JAX calls this in every process that has the package. JaxError where distxla's platform is asked for."""
    if "distxla" in wanted_platforms():
        raise JaxError(unmet("JAX on distxla's devices") or "the plugin was loaded before its packages were installed")


__all__ = ["initialize"]
