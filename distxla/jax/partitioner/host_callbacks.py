"""The functions behind the callbacks of a lowered function: those of `jax.debug.print`, `jax.pure_callback`,
`io_callback` and `buffer_callback`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distxla.jax.partitioner.buffer_callbacks import taking_arrays
from distxla.jax.private.names import host_callbacks, is_buffer_callback


def host_calls_of(lowered: Any) -> dict[int, Callable[..., Any]]:
    """What `Cluster.compile(module, host_calls=…)` takes for the program of a `jax.stages.Lowered`: its callbacks.

    The program must have been lowered for the platform cpu. Empty where it has no callback. JaxError where this
    version of JAX keeps them elsewhere.
    """
    return by_number(host_callbacks(lowered))


def by_number(functions: Sequence[Callable[..., Any]]) -> dict[int, Callable[..., Any]]:
    """The functions of a module's callbacks as `Cluster.compile` takes them."""
    return {k: taking_arrays(f) if is_buffer_callback(f) else f for k, f in enumerate(functions)}


__all__ = ["by_number", "host_calls_of"]
