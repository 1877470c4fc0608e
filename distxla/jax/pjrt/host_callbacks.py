"""The Python functions behind the callbacks of the module that is being compiled.

PJRT's compilation has no place for them, and XLA may compile in a thread of its own. So JAX names them before
(`private_names.around_compilation`), and modules that have any are compiled one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from distxla.jax.pjrt.devices import NAME

Callbacks = Sequence[Callable[..., Any]]


class HostCallbacks:
    """Those of the plugin's platform."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._named: list[Callbacks] = []  # of the compilation that goes on

    @contextmanager
    def during(self, platform_version: str, callbacks: Callbacks) -> Iterator[None]:
        """JAX compiles a module with these callbacks in the with-body: if there are any, no other such module."""
        if not callbacks or not platform_version.startswith(NAME):
            yield
            return
        with self._turn:
            self._named.append(callbacks)
            try:
                yield
            finally:
                self._named.pop()

    @property
    def being_compiled(self) -> Callbacks:
        """Of the module that JAX compiles now, in whatever thread; none where it has none."""
        return self._named[-1] if self._named else ()


HOST_CALLBACKS: Final = HostCallbacks()
