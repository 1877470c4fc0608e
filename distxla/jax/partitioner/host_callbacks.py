"""The functions behind the callbacks of a lowered function: those of `jax.debug.print`, `jax.pure_callback`,
`io_callback` and `buffer_callback`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from distxla.jax.private.names import host_callbacks, is_buffer_callback


def host_calls_of(lowered: Any) -> dict[int, Callable[..., Any]]:
    """What `Cluster.compile(module, host_calls=…)` takes for the program of a `jax.stages.Lowered`: its callbacks.

    The program must have been lowered for the platform cpu. Empty where it has no callback. JaxError where this
    version of JAX keeps them elsewhere.
    """
    return by_number(host_callbacks(lowered))


def by_number(functions: Sequence[Callable[..., Any]]) -> dict[int, Callable[..., Any]]:
    """The functions of a module's callbacks as `Cluster.compile` takes them."""
    return {k: _taking_arrays(f) if is_buffer_callback(f) else f for k, f in enumerate(functions)}


def _taking_arrays(function: Callable[..., Any]) -> Callable[..., None]:
    """A function of `buffer_callback` with arrays in the place of buffers, of which it fills the last, and without a
    context."""

    def filled(*arrays: Any) -> None:
        context, buffer = _classes()
        function(context(), *map(buffer, arrays))

    return filled


@cache
def _classes() -> tuple[type, type]:
    """Of contexts and of buffers. jaxlib's are for memory of XLA's own clients: here they are base classes of views on
    NumPy's arrays."""
    jax: Any = importlib.import_module("jax")
    callback: Any = importlib.import_module("jax.experimental.buffer_callback")

    class Context(callback.ExecutionContext):  # type: ignore[misc]
        def __init__(self) -> None:
            """The base class has no constructor."""

        @property
        def stage(self) -> Any:
            return callback.ExecutionStage.EXECUTE

        @property
        def stream(self) -> int:
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")

    class Buffer(callback.Buffer):  # type: ignore[misc]
        def __init__(self, array: Any) -> None:
            self._array = array

        @property
        def shape(self) -> tuple[int, ...]:
            return tuple(self._array.shape)

        @property
        def dtype(self) -> Any:
            return self._array.dtype

        @property
        def ndim(self) -> int:
            return len(self.shape)

        @property
        def writeable(self) -> bool:
            return bool(self._array.flags.writeable)

        @property
        def __cuda_array_interface__(self) -> Any:
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: the buffer is in memory of the host, not of a CUDA device")

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return np.array(self._array, dtype=dtype, copy=copy)

        def __dlpack__(self, **options: Any) -> Any:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._array.__dlpack_device__()

    return Context, Buffer


__all__ = ["by_number", "host_calls_of"]
