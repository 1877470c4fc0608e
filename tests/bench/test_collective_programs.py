"""The loops that the bench times do what their names say."""

from __future__ import annotations

import numpy as np
import pytest

from bench.collective_programs import BODIES, DIVIDED, READ_ELEMENTS, SIZES, build, loops
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module

TRIPS = 2
Array = np.ndarray


def once(collective: str, x: Array) -> Array:
    """One trip on all devices. x: [device, ...]."""
    members = len(x)
    flat = x.reshape(members, -1)
    if collective == "all-reduce":
        return np.broadcast_to(x.sum(axis=0), x.shape)
    if collective == "all-reduce, only read":
        return with_some_of(np.broadcast_to(x.sum(axis=0), x.shape), x)
    if collective == "all-gather":
        return with_some_of(np.broadcast_to(flat.reshape(-1), (members, flat.size)), x)
    if collective == "collective-broadcast":
        return with_some_of(np.broadcast_to(x[0], x.shape), x)
    if collective == "reduce-scatter":
        result = flat.copy()
        part = flat.shape[1] // members
        result[:, :part] = flat.sum(axis=0).reshape(members, part)
        return result.reshape(x.shape)
    if collective == "all-to-all":
        return x.swapaxes(0, 1)
    return np.roll(x, 1, axis=0)


def with_some_of(results: Array, x: Array) -> Array:
    """x with the results' last elements at its beginning."""
    count = min(READ_ELEMENTS, x.shape[1])
    found = x.copy()
    found[:, :count] = results[:, -count:]
    return found


@pytest.mark.parametrize("members", [2, 8])
@pytest.mark.parametrize("size", ["4 B", "4 KiB"])
@pytest.mark.parametrize("collective", BODIES)
def test_a_loop_runs_its_collective(collective: str, size: str, members: int) -> None:
    loop = build(collective, members, size, SIZES[size])
    x = np.random.default_rng(0).integers(0, 9, (members, *loop.dims)).astype(np.float32)
    arguments = [[x[d], np.array(TRIPS, np.int32)] for d in range(members)]
    outs = run_reference(parse_module(loop.text), arguments, Counts(1, members))
    expected = once(collective, once(collective, x))
    np.testing.assert_array_equal(np.stack([leaves[0] for leaves in outs]), expected)


def test_every_size_is_built() -> None:
    assert {(loop.collective, loop.size) for loop in loops(8)} == {(c, s) for c in BODIES for s in SIZES}
    assert build("all-gather", 8, "1 MiB", 1 << 20).dims == (1 << 15,)
    assert set(DIVIDED) < set(BODIES)
