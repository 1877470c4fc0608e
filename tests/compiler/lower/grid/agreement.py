"""Kernels on a grid beside this processor's: the same program, compiled for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions
from tests.compiler.runner import run_single

Array = np.ndarray[Any, Any]


def both(module: Module, arguments: Sequence[Array]) -> tuple[CompiledProgram, list[Array], list[Array]]:
    """The program with kernels on a grid; the results' leaves of the processor's kernels, and of those."""
    ours, theirs = (compile_module(module, Counts(1, 1), CompileOptions(target=target)) for target in (None, "nvptx"))
    return theirs, run_single(ours, list(arguments)), run_single(theirs, list(arguments))


def differing(wanted: Array, got: Array) -> Array:
    """Where bits differ; any two NaNs are equal, since processors make NaNs with other bits."""
    assert (wanted.dtype, wanted.shape) == (got.dtype, got.shape)
    size = max(1, wanted.dtype.itemsize)
    rows = [np.frombuffer(a.tobytes(), np.uint8).reshape(-1, size) for a in (wanted, got)]
    differs: Array = (rows[0] != rows[1]).any(1)
    if not differs.any() or wanted.dtype.kind in "iub":
        return differs
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        numbers = [a.astype(wide).ravel() for a in (wanted, got)]
    return differs & ~(np.isnan(numbers[0]) & np.isnan(numbers[1]))


__all__ = ["Array", "both", "differing"]
