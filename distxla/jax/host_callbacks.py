"""The functions behind `jax.debug.print`, `jax.pure_callback` and `io_callback` in a lowered function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distxla.jax.private_names import host_callbacks


def host_calls_of(lowered: Any) -> dict[int, Callable[..., Any]]:
    """What `Cluster.compile(module, host_calls=…)` takes for the program of a `jax.stages.Lowered`: its callbacks.

    The program must have been lowered for the platform cpu. Empty where it has no callback. JaxError where this
    version of JAX keeps them elsewhere.
    """
    return dict(enumerate(host_callbacks(lowered)))


__all__ = ["host_calls_of"]
