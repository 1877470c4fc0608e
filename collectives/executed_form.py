"""The form in which the reference, `check` and the compiler all execute a module."""

from __future__ import annotations

from distxla.collectives.async_computations import with_async_inlined
from distxla.ir.module import Module
from distxla.ops.explicit_precision import with_explicit_precision


def executed_form(module: Module) -> Module:
    """A verified module with conversions where floats of several types meet, and without asynchronous computations that
    communicate in other ways than by one collective; the same object where nothing changes."""
    return with_async_inlined(with_explicit_precision(module))
