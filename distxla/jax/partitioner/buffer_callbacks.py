"""Arguments of functions of `jax.experimental.buffer_callback`: a context, and buffers, of which they fill the last.

jaxlib's classes are for memory of XLA's own clients. Here they are base classes of views on NumPy's arrays.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np


def taking_arrays(function: Callable[..., Any]) -> Callable[..., None]:
    """The function with arrays in the place of buffers, and without a context."""

    def filled(*arrays: Any) -> None:
        context, buffer = _classes()
        function(context(), *map(buffer, arrays))

    return filled


@cache
def _classes() -> tuple[type, type]:
    """Of contexts and of buffers."""
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


__all__ = ["taking_arrays"]
