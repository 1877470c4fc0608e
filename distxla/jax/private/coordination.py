"""The private names of JAX that several processes need: of its coordination service, and how clients are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from distxla.errors import ClusterError, raised
from distxla.jax.private.names import expected_names, jax_module

_PREFIX: Final = "distxla:"  # of keys


def make_client(plugin: str) -> Any:
    """JAX's client of a plugin. After `jax.distributed.initialize` it gets the number of processes and which one it is,
    but not the coordination service: JAX would watch that in a thread that outlives it, which delays the end of process
    0 by 5 s, and prints warnings at the end of each."""
    bridge = jax_module("jax._src.xla_bridge")
    with expected_names():
        state = bridge.distributed.global_state
        if state.client is None:
            return bridge.make_pjrt_c_api_client(plugin)
        library = bridge.xla_client
        if not library.pjrt_plugin_initialized(plugin):
            library.initialize_pjrt_plugin(plugin)
        make, options = library.make_c_api_client, {"node_id": state.process_id, "num_nodes": state.num_processes}
    return make(plugin, options, None)


@contextmanager
def alone() -> Iterator[None]:
    """Within, a client that JAX makes is that of one process. JAX's own CPU client beside the plugin has no part in
    what processes do together: it would wait for those of the others, and there may be one such client only."""
    with expected_names():
        state = jax_module("jax._src.distributed").global_state
        before = state.client, state.process_id, state.num_processes
    try:
        state.client, state.process_id, state.num_processes = None, 0, 1
        yield
    finally:
        state.client, state.process_id, state.num_processes = before


class CoordinationStore:
    """The key-value store of JAX's coordination service. Keys can't be written twice. Both methods block and raise
    ClusterError."""

    def __init__(self) -> None:
        """ClusterError where `jax.distributed` has not been initialised."""
        with expected_names():
            self._client = jax_module("jax._src.distributed").global_state.client
        if self._client is None:
            raise ClusterError("several processes of JAX: jax.distributed has not been initialised")

    def put(self, key: str, value: bytes) -> None:
        """For all processes."""
        with expected_names():
            put = self._client.key_value_set_bytes
        try:
            put(_PREFIX + key, value)
        except Exception as error:
            raise ClusterError(f"JAX's coordination service takes no value for {key}: {raised(error)}") from error

    def get(self, key: str, seconds: float) -> bytes:
        """The value, once a process has put it, but for at most so many seconds."""
        with expected_names():
            get = self._client.blocking_key_value_get_bytes
        try:
            return bytes(get(_PREFIX + key, max(1, int(seconds * 1000))))
        except Exception as error:
            raise ClusterError(f"JAX's coordination service has no value for {key}: {raised(error)}") from error


__all__ = ["CoordinationStore", "alone", "make_client"]
