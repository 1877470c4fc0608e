"""What test_lapack_calls.py shares with other tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from tests.compiler.runner import run_single
from tests.ops.case import Array

Leaves = Sequence[Array]


def operand(kind: str, *dims: int) -> Array:
    generator = np.random.default_rng([*dims])
    value = generator.normal(size=dims)
    if kind.startswith("complex"):
        value = value + 1j * generator.normal(size=dims)
    return value.astype(kind)


def by_both(module: Module, arguments: Leaves) -> list[tuple[str, list[Array]]]:
    """The results of the reference and of compiled code."""
    (reference,) = run_reference(module, [list(arguments)], Counts(1, 1))
    compiled = run_single(compile_module(module, Counts(1, 1)), arguments)
    return [("reference", [np.asarray(r) for r in reference]), ("compiled", compiled)]
