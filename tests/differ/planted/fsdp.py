"""FSDP: weights are gathered before the update that they should have, and used after it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.program import mesh, numbers, planted


def gather(shards: Any) -> Any:
    return jax.tree.map(whole_of, shards)


def whole_of(w: Any) -> Any:
    return lax.all_gather(w, "data", tiled=True)  # planted-use: gathered_before_update, two_steps_unrolled


def scatter(gradients: Any) -> Any:
    return jax.tree.map(lambda g: lax.psum_scatter(g, "data", tiled=True) / lax.axis_size("data"), gradients)


def loss(w: Any, x: Any, y: Any) -> Any:
    h = jax.nn.gelu(x @ w["a"])  # planted-use: gathered_before_update, two_steps_unrolled
    return jnp.mean(jnp.square(h @ w["b"] - y))  # planted-use: gathered_before_update, two_steps_unrolled


def updated(w: Any, g: Any) -> Any:
    return jax.tree.map(lambda p, g: p - jnp.asarray(0.5, p.dtype) * g.astype(p.dtype), w, g)


def parameters(dtype: Any) -> Any:
    return {"a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, 8, dtype=dtype, scale=0.4)}


def plain_steps(w: Any, xs: Any, ys: Any) -> Any:
    values = []
    for x, y in zip(xs, ys, strict=True):
        value, gradients = jax.value_and_grad(loss)(w, x, y)
        w = updated(w, gradients)
        values.append(value)
    return w, jnp.stack(values)


SPLIT = {"a": P("data"), "b": P("data")}


@planted("weights gathered before the update", twin="plain")
def gathered_before_update(dtype: Any, bug: bool) -> Any:
    """The loop carries the whole weights for its next iteration, which it gathers of the old shards."""

    def train(shards: Any, xs: Any, ys: Any) -> Any:
        def body(state: Any, batch: Any) -> Any:
            shards, whole = state
            value, gradients = jax.value_and_grad(loss)(whole, *batch)  # planted-use: gathered_before_update
            new = updated(shards, scatter(gradients))
            whole = gather(shards if bug else new)  # planted: gathered_before_update
            return (new, whole), lax.pmean(value, "data")

        (shards, _), values = lax.scan(body, (shards, gather(shards)), (xs, ys))
        return shards, values

    sharded = jax.shard_map(
        train, mesh=mesh(8, names=("data",)), in_specs=(SPLIT, P(None, "data"), P(None, "data")),
        out_specs=(SPLIT, P()), check_vma=False,
    )  # fmt: skip
    args = parameters(dtype), numbers(3, 3, 16, 8, dtype=dtype), numbers(4, 3, 16, 8, dtype=dtype)
    return jax.jit(sharded), plain_steps, args


@planted("weights gathered before the update", twin="plain")
def two_steps_unrolled(dtype: Any, bug: bool) -> Any:
    """Two steps written one below the other; the second uses what the first has gathered."""

    def step(shards: Any, whole: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(whole, x, y)  # planted-use: two_steps_unrolled
        return updated(shards, scatter(gradients)), lax.pmean(value, "data")

    def train(shards: Any, xs: Any, ys: Any) -> Any:
        whole = gather(shards)  # planted-use: two_steps_unrolled
        shards, first = step(shards, whole, xs[0], ys[0])
        if not bug:
            whole = gather(shards)
        shards, second = step(shards, whole, xs[1], ys[1])  # planted: two_steps_unrolled
        return shards, jnp.stack([first, second])

    sharded = jax.shard_map(
        train, mesh=mesh(8, names=("data",)), in_specs=(SPLIT, P(None, "data"), P(None, "data")),
        out_specs=(SPLIT, P()), check_vma=False,
    )  # fmt: skip
    args = parameters(dtype), numbers(5, 2, 16, 8, dtype=dtype), numbers(6, 2, 16, 8, dtype=dtype)
    return jax.jit(sharded), plain_steps, args


@planted("weights gathered before the update", twin="plain")
def evaluated_with_old_weights(dtype: Any, bug: bool) -> Any:
    """A step returns the whole weights for the evaluation, and their moving average: of before the update."""

    def evaluate(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w["a"]) @ w["b"]  # planted-use: evaluated_with_old_weights

    def step(shards: Any, average: Any, x: Any, y: Any) -> Any:
        whole = gather(shards)  # planted-use: evaluated_with_old_weights
        gradients = jax.grad(loss)(whole, x, y)
        shards = updated(shards, scatter(gradients))
        if not bug:
            whole = gather(shards)
        half = jnp.asarray(0.5, dtype)
        average = jax.tree.map(lambda a, w: half * a + half * w, average, whole)  # planted: evaluated_with_old_weights
        return shards, average, evaluate(whole, x)  # planted: evaluated_with_old_weights

    def plain(w: Any, average: Any, x: Any, y: Any) -> Any:
        w = updated(w, jax.grad(loss)(w, x, y))
        half = jnp.asarray(0.5, dtype)
        average = jax.tree.map(lambda a, w: half * a + half * w, average, w)
        return w, average, jnp.tanh(x @ w["a"]) @ w["b"]

    whole = {"a": P(), "b": P()}
    sharded = jax.shard_map(
        step, mesh=mesh(8, names=("data",)), in_specs=(SPLIT, whole, P("data"), P("data")),
        out_specs=(SPLIT, whole, P("data")), check_vma=False,
    )  # fmt: skip
    w = parameters(dtype)
    args = w, jax.tree.map(lambda p: p * 0, w), numbers(7, 16, 8, dtype=dtype), numbers(8, 16, 8, dtype=dtype)
    return jax.jit(sharded), plain, args
