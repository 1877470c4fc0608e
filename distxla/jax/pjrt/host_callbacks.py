"""The Python functions behind the callbacks of the module that is being compiled.

PJRT's compilation has no place for them, and XLA may compile in a thread of its own. So JAX names them before
(`private_backends.around_compilation`), and modules that have any are compiled one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from distxla.jax.pjrt.devices import is_ours

Callbacks = Sequence[Callable[..., Any]]


class HostCallbacks:
    """Callbacks of modules for the plugin's devices. being_compiled: those of the module that JAX compiles now, in
    whatever thread; none where it has none."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self.being_compiled: Callbacks = ()

    def around(self, platform_version: str, callbacks: Callbacks, compile_: Callable[[], Any]) -> Any:
        """What compile_() gives, which compiles a module with these callbacks; it waits for others that have any.

        platform_version: as JAX has it. Its first line may be of JAX's own.
        """
        if not callbacks or not is_ours(platform_version):
            return compile_()
        with self._turn:
            outer = self.being_compiled
            try:
                self.being_compiled = callbacks
                return compile_()
            finally:
                self.being_compiled = outer


HOST_CALLBACKS: Final = HostCallbacks()
