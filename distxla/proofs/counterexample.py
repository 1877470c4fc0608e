"""Inputs for which two programs differ, found by running both in the reference.

A part that is taken for the whole makes a difference unless what is computed of it does not depend on it: a softmax is
the same whatever is subtracted from all of its operands. So a proof of a difference needs an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from distxla.errors import DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.shards import Shards
from distxla.oracle.lockstep import run_reference

MOST_ELEMENTS = 1 << 20  # of all arguments
SECONDS = 10.0
TOLERANCE = 1e-2  # relative to the largest element


def is_different(
    sharded: Module,
    counts: Counts,
    unsharded: Module,
    whole: Sequence[Shape],
    places: Sequence[Shards],
    result: int,
    shards: Shards | None,
) -> bool:
    """Whether a result differs for one drawn input, by more than rounding explains. False also where that isn't known:
    for large arguments, programs that the reference can't run in time, and results of which no one says how they lie.

    whole, places: shapes of the unsharded parameters' leaves and how they are cut.
    result: number of the leaf.
    """
    if sum(prod(shape.dims) for shape in whole if shape.is_array) > MOST_ELEMENTS:
        return False
    generator = np.random.default_rng(0)
    args = [_drawn(generator, shape) for shape in whole]
    rows = [[at.split(a, d) for a, at in zip(args, places, strict=True)] for d in range(counts.devices)]
    try:
        found = run_reference(sharded, rows, counts, time_limit=SECONDS)
        wanted = run_reference(unsharded, [args], Counts(1, 1), time_limit=SECONDS)[0][result]
    except DistxlaError:
        return False
    for device, leaves in enumerate(found):
        own = leaves[result]
        if own is None or wanted is None or (shards is None and own.shape != wanted.shape):
            return False
        due = wanted if shards is None else shards.split(wanted, device)
        if _differs(np.asarray(own), np.asarray(due)):
            return True
    return False


def _drawn(generator: np.random.Generator, shape: Shape) -> Any:
    element_type: ElementType = shape.dtype
    if element_type.is_integer or element_type.kind == "pred":
        return generator.integers(0, 2, shape.dims).astype(element_type.dtype)
    return generator.standard_normal(shape.dims).astype(element_type.dtype)


def _differs(own: Any, due: Any) -> bool:
    one, other = (a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (own, due))
    known = np.isfinite(one) & np.isfinite(other)
    if not known.any():
        return False
    scale = max(float(np.abs(other[known]).max()), 1e-30)
    return bool(np.abs(one[known] - other[known]).max() > TOLERANCE * scale)


__all__ = ["is_different"]
