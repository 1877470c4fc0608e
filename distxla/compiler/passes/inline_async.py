"""Put asynchronous computations that communicate in their place: what begins at the start, what waits at the done."""

from __future__ import annotations

from typing import ClassVar

from distxla.collectives.async_computations import with_async_inlined
from distxla.compiler.step import Pass
from distxla.ir.module import Module


class InlineAsync(Pass):
    """Replace every async-start, async-update and async-done of a computation that communicates, unless it is a single
    collective, by the instructions of that computation.

    Ensures: what begins a round or transfer stands at the start and waits for nobody; the rest stands at the done.
    """

    name: ClassVar[str] = "inline-async"

    def run(self, module: Module) -> Module:
        return with_async_inlined(module)
