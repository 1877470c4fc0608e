"""The form in which the reference, `check` and the compiler all execute a module."""

from __future__ import annotations

from collections.abc import Callable

from distxla.ir.module import Module
from distxla.ops.custom_calls.host_execute import with_host_calls
from distxla.rewrites.async_computations import with_async_inlined
from distxla.rewrites.explicit_precision import with_explicit_precision
from distxla.rewrites.spread_collectives import with_spread_collectives

REWRITES: tuple[Callable[[Module], Module], ...] = (
    with_host_calls,
    with_explicit_precision,
    with_spread_collectives,
    with_async_inlined,
)
"""In order. The compiler's list of steps begins with the same ones (tests/compiler/test_executed_form.py)."""


def executed_form(module: Module) -> Module:
    """A verified module with conversions where floats of several types meet, with collectives that are spread over
    fusions as pairs, with calls of the host computations that it names, and without asynchronous computations that
    communicate in other ways than by one collective; the same object where nothing changes."""
    for rewrite in REWRITES:
        module = rewrite(module)
    return module


__all__ = ["REWRITES", "executed_form"]
