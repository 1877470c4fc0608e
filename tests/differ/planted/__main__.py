"""`python -m tests.differ.planted [FAMILY ...]`: what plain JAX says of the programs, on 8 CPU devices.

Prints one JSON object a line: name, dtype, bug, and difference, the largest of all results relative to their largest
value.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np

from tests.differ.planted.program import TYPES, Program, load


def difference(found: Any, wanted: Any) -> float:
    """The largest of all results, relative to the largest value of its result."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        x, y = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
        assert x.shape == y.shape, (x.shape, y.shape)
        assert np.isfinite(y).all(), "the unsharded result is not finite"
        worst = max(worst, float(np.max(np.abs(x - y)) / (np.max(np.abs(y)) + 1e-30)))
    return worst


def measured(program: Program, dtype: str, bug: bool) -> dict[str, Any]:
    sharded, unsharded, args = program.build(jax.numpy.dtype(dtype), bug)
    found, wanted = sharded(*args), jax.jit(unsharded)(*args)
    return {"name": program.name, "dtype": dtype, "bug": bug, "difference": difference(found, wanted)}


def main(families: list[str]) -> None:
    for program in load(*families).values():
        for dtype in TYPES:
            for bug in (False, True)[: 1 + program.has_bug]:
                print(json.dumps(measured(program, dtype, bug)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
