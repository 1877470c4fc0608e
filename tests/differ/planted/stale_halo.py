"""A stale halo: a stencil in a loop reads the neighbours' cells of an earlier iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.permute import ring
from tests.differ.planted.program import mesh, numbers, planted


def exchange(u: Any, axis_name: str, axis: int = 0) -> Any:
    """The last row of the device before, and the first of the one behind; periodic."""
    first, last = lax.slice_in_dim(u, 0, 1, axis=axis), lax.slice_in_dim(u, -1, None, axis=axis)
    return lax.ppermute(last, axis_name, ring(axis_name, 1)), lax.ppermute(first, axis_name, ring(axis_name, -1))


def diffused(u: Any, left: Any, right: Any) -> Any:
    padded = jnp.concatenate([left, u, right])  # planted-use: exchanged_once
    return u + jnp.asarray(0.25, u.dtype) * (padded[:-2] - 2 * u + padded[2:])


def heat(steps: int) -> Any:
    def plain(u: Any) -> Any:
        for _ in range(steps):
            u = u + jnp.asarray(0.25, u.dtype) * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))
        return u

    return plain


@planted("stale halo", twin="plain")
def exchanged_once(dtype: Any, bug: bool) -> Any:
    """The halo is exchanged in front of the loop only."""

    def solve(u: Any) -> Any:
        halo = exchange(u, "data")

        def body(_: Any, u: Any) -> Any:
            left, right = halo if bug else exchange(u, "data")
            return diffused(u, left, right)  # planted: exchanged_once

        return lax.fori_loop(0, 4, body, u)

    sharded = jax.shard_map(solve, mesh=mesh(8, names=("data",)), in_specs=P("data"), out_specs=P("data"))
    return jax.jit(sharded), heat(4), (numbers(1, 32, dtype=dtype),)


@planted("stale halo", twin="plain")
def carried_halo(dtype: Any, bug: bool) -> Any:
    """The loop carries the halo: it is exchanged of the cells before the update, so that it is one iteration late."""

    def solve(u: Any) -> Any:
        def body(_: Any, state: Any) -> Any:
            u, left, right = state
            padded = jnp.concatenate([left, u, right])  # planted-use: carried_halo
            updated = u + jnp.asarray(0.25, u.dtype) * (padded[:-2] - 2 * u + padded[2:])
            left, right = exchange(u if bug else updated, "data")  # planted: carried_halo
            return updated, left, right

        return lax.fori_loop(0, 4, body, (u, *exchange(u, "data")))[0]

    sharded = jax.shard_map(solve, mesh=mesh(8, names=("data",)), in_specs=P("data"), out_specs=P("data"))
    return jax.jit(sharded), heat(4), (numbers(2, 32, dtype=dtype),)


@planted("stale halo", twin="plain")
def jacobi_on_a_grid(dtype: Any, bug: bool) -> Any:
    """Two dimensions on a mesh of two: columns of neighbours are exchanged each iteration, rows once."""

    def halo(u: Any, rows: Any) -> Any:
        up, down = rows
        left, right = exchange(u, "model", axis=1)
        return up, down, left, right

    def relaxed(u: Any, f: Any, sides: Any) -> Any:
        up, down, left, right = sides
        tall = jnp.concatenate([up, u, down], axis=0)  # planted-use: jacobi_on_a_grid
        wide = jnp.concatenate([left, u, right], axis=1)
        total = tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:]
        return jnp.asarray(0.25, u.dtype) * (total - f)

    def solve(u: Any, f: Any) -> Any:
        before = exchange(u, "data")

        def body(u: Any, _: Any) -> Any:
            rows = before if bug else exchange(u, "data")
            sides = halo(u, rows)  # planted: jacobi_on_a_grid
            return relaxed(u, f, sides), jnp.zeros((), u.dtype)  # planted-use: jacobi_on_a_grid

        return lax.scan(body, u, None, length=3)[0]

    def plain(u: Any, f: Any) -> Any:
        for _ in range(3):
            around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
            u = jnp.asarray(0.25, u.dtype) * (around - f)
        return u

    both = P("data", "model")
    sharded = jax.shard_map(solve, mesh=mesh(4, 2), in_specs=(both, both), out_specs=both, check_vma=False)
    return jax.jit(sharded), plain, (numbers(3, 12, 8, dtype=dtype), numbers(4, 12, 8, dtype=dtype))


@planted("stale halo", twin="plain")
def every_second_iteration(dtype: Any, bug: bool) -> Any:
    """To save communication, the halo is renewed in even iterations only, and has one row as before."""

    def solve(u: Any) -> Any:
        def body(state: Any, i: Any) -> Any:
            u, halo = state
            halo = renewed(i, u, halo)
            left, right = halo
            padded = jnp.concatenate([left, u, right])  # planted-use: every_second_iteration
            return (u + jnp.asarray(0.25, u.dtype) * (padded[:-2] - 2 * u + padded[2:]), halo), u[0]

        (u, _), firsts = lax.scan(body, (u, exchange(u, "data")), jnp.arange(4))
        return u, firsts[:, None]

    def renewed(i: Any, u: Any, halo: Any) -> Any:
        if not bug:
            return exchange(u, "data")
        return lax.cond(i % 2 == 0, lambda: exchange(u, "data"), lambda: halo)  # planted: every_second_iteration

    def plain(u: Any) -> Any:
        firsts = []
        for _ in range(4):
            firsts.append(u[::4])
            u = u + jnp.asarray(0.25, u.dtype) * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))
        return u, jnp.stack(firsts)

    sharded = jax.shard_map(
        solve, mesh=mesh(8, names=("data",)), in_specs=P("data"), out_specs=(P("data"), P(None, "data")),
        check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), plain, (numbers(5, 32, dtype=dtype),)
