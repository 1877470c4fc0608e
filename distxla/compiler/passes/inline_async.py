"""Inline asynchronous computations that communicate.

What begins communication goes to the async-start, what waits to the async-done.
"""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.module import Module
from distxla.rewrites.async_computations import with_async_inlined
from distxla.rewrites.step import Pass


class InlineAsync(Pass):
    """Replace every async-start, async-update and async-done of a computation that communicates, unless it is a single
    collective, by the instructions of that computation.

    Ensures: starts of rounds and transfers are at the start and never wait; the rest is at the done.
    """

    name: ClassVar[str] = "inline-async"

    def run(self, module: Module) -> Module:
        return with_async_inlined(module)
