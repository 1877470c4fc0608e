"""The loops that the bench times do what their names say."""

from __future__ import annotations

import numpy as np
import pytest

from bench.collective_programs import BODIES, DEVICES, SIZES, build, loops
from distxla.reference.lockstep import run_reference
from distxla.text.parser import parse_module

TRIPS = 2


def once(collective: str, x: np.ndarray) -> np.ndarray:
    """One trip on all devices. x: [device, ...]."""
    flat = x.reshape(DEVICES, -1)
    part = flat.shape[1] // DEVICES
    if collective == "all-reduce":
        return np.broadcast_to(x.sum(axis=0), x.shape)
    if collective == "all-gather":
        return np.broadcast_to(flat[:, :part].reshape(-1), x.shape)
    if collective == "reduce-scatter":
        result = flat.copy()
        result[:, :part] = flat.sum(axis=0).reshape(DEVICES, part)
        return result.reshape(x.shape)
    if collective == "all-to-all":
        return x.swapaxes(0, 1)
    return np.roll(x, 1, axis=0)


@pytest.mark.parametrize("size", ["4 B", "4 KiB"])
@pytest.mark.parametrize("collective", BODIES)
def test_a_loop_runs_its_collective(collective: str, size: str) -> None:
    loop = build(collective, size, SIZES[size])
    x = np.random.default_rng(0).integers(0, 9, (DEVICES, *loop.dims)).astype(np.float32)
    arguments = [[x[d], np.array(TRIPS, np.int32)] for d in range(DEVICES)]
    outs = run_reference(parse_module(loop.text), arguments, replicas=1, partitions=DEVICES)
    expected = once(collective, once(collective, x))
    np.testing.assert_array_equal(np.stack([leaves[0] for leaves in outs]), expected)


def test_every_size_is_built() -> None:
    assert {(loop.collective, loop.size) for loop in loops()} == {(c, s) for c in BODIES for s in SIZES}
    assert build("all-gather", "1 MiB", 1 << 20).dims == (1 << 18,)
