"""Missing psum from the second iteration on: what enters a loop is right, what a turn hands to the next isn't."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import layer_norm, sgd
from tests.differ.planted.program import mesh, numbers, planted


def spectrum(count: int, dtype: Any) -> Any:
    """A symmetric positive matrix."""
    m = numbers(11, count, count)
    return (np.eye(count) + m @ m.T / (4 * count)).astype(dtype)


@planted("missing psum from the second iteration on", twin="one")
def steepest_descent(dtype: Any, bug: bool) -> Any:
    """Rows are split. The square of the residual is reduced in front of the loop, and in its body no more."""

    def square(r: Any) -> Any:
        return lax.psum(jnp.vdot(r, r), "data")

    def solve(a: Any, b: Any) -> Any:
        def body(_: Any, state: Any) -> Any:
            x, r, rr = state
            p = lax.all_gather(r, "data", tiled=True)
            ap = a @ p
            alpha = rr / lax.psum(jnp.vdot(r, ap), "data")  # planted-use: steepest_descent
            r = r - alpha * ap
            rr = jnp.vdot(r, r) if bug else square(r)  # planted: steepest_descent
            return x + alpha * state[1], r, rr

        x = jnp.zeros_like(b)
        return lax.fori_loop(0, 4, body, (x, b, square(b)))[0]

    def on(devices: Any) -> Any:
        ins = (P("data"), P("data"))
        return jax.jit(jax.shard_map(solve, mesh=devices, in_specs=ins, out_specs=P("data"), check_vma=False))

    args = spectrum(16, dtype), numbers(2, 16, dtype=dtype)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args


@planted("missing psum from the second iteration on", twin="plain")
def power_iteration(dtype: Any, bug: bool) -> Any:
    """Columns are split. The product is reduced in iteration 0 only."""

    def iterate(a: Any, v: Any) -> Any:
        width = a.shape[1]

        def body(v: Any, i: Any) -> Any:
            own = lax.dynamic_slice_in_dim(v, lax.axis_index("model") * width, width)
            y = a @ own  # planted: power_iteration
            whole = lax.psum(y, "model")
            y = jnp.where(i == 0, whole, y) if bug else whole  # planted-use: power_iteration
            v = y / jnp.sqrt(jnp.sum(jnp.square(y)))  # planted-use: power_iteration
            return v, v[0]

        return lax.scan(body, v, jnp.arange(3))

    def plain(a: Any, v: Any) -> Any:
        first = []
        for _ in range(3):
            y = a @ v
            v = y / jnp.sqrt(jnp.sum(jnp.square(y)))
            first.append(v[0])
        return v, jnp.stack(first)

    sharded = jax.shard_map(
        iterate, mesh=mesh(2, 4), in_specs=(P(None, "model"), P()), out_specs=(P(), P()), check_vma=False
    )
    return jax.jit(sharded), plain, (spectrum(16, dtype), numbers(3, 16, dtype=dtype))


@planted("missing psum from the second iteration on", twin="one")
def layers_in_scan(dtype: Any, bug: bool) -> Any:
    """The first layer stands in front of the scan over the others, whose body has no sum of its own."""

    def split_layer(w: Any, x: Any) -> Any:
        return jax.nn.gelu(x @ w["up"]) @ w["down"]  # planted: layers_in_scan

    def model(first: Any, rest: Any, x: Any) -> Any:
        x = layer_norm(x + lax.psum(split_layer(first, x), "model"), 1, 0)

        def body(x: Any, w: Any) -> Any:
            y = split_layer(w, x)  # planted-use: layers_in_scan
            y = y if bug else lax.psum(y, "model")
            return layer_norm(x + y, 1, 0), jnp.mean(x)  # planted-use: layers_in_scan

        return lax.scan(body, x, rest)[0]

    def on(devices: Any) -> Any:
        split = {"up": P(None, "model"), "down": P("model")}
        stacked = {"up": P(None, None, "model"), "down": P(None, "model")}
        ins = (split, stacked, P("data"))
        return jax.jit(jax.shard_map(model, mesh=devices, in_specs=ins, out_specs=P("data"), check_vma=False))

    first = {"up": numbers(1, 8, 16, dtype=dtype, scale=0.4), "down": numbers(2, 16, 8, dtype=dtype, scale=0.4)}
    rest = {"up": numbers(3, 3, 8, 16, dtype=dtype, scale=0.4), "down": numbers(4, 3, 16, 8, dtype=dtype, scale=0.4)}
    return on(mesh(4, 2)), on(mesh(1, 1)), (first, rest, numbers(5, 8, 8, dtype=dtype))


@planted("missing psum from the second iteration on", twin="plain")
def every_second_step(dtype: Any, bug: bool) -> Any:
    """Three training steps in a scan, of which the odd ones don't average their gradients."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.square(jnp.tanh(x @ w["a"]) @ w["b"] - y))  # planted: every_second_step

    def averaged(gradients: Any, step: Any) -> Any:
        def whole(g: Any) -> Any:
            return lax.pmean(g, "data")

        if not bug:
            return whole(gradients)
        return lax.cond(step % 2 == 0, whole, lambda g: g, gradients)  # planted-use: every_second_step

    def train(w: Any, batches: Any) -> Any:
        def body(w: Any, batch: Any) -> Any:
            step, x, y = batch
            value, gradients = jax.value_and_grad(loss)(w, x, y)  # planted-use: every_second_step
            return sgd(w, averaged(gradients, step), 0.5), lax.pmean(value, "data")  # planted-use: every_second_step

        return lax.scan(body, w, (jnp.arange(3), *batches))

    def plain(w: Any, batches: Any) -> Any:
        values = []
        for k in range(3):
            value, gradients = jax.value_and_grad(loss)(w, batches[0][k], batches[1][k])
            w = sgd(w, gradients, 0.5)
            values.append(value)
        return w, jnp.stack(values)

    params = {"a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, 4, dtype=dtype, scale=0.4)}
    batches = numbers(3, 3, 16, 8, dtype=dtype), numbers(4, 3, 16, 4, dtype=dtype)
    ins = ({"a": P(), "b": P()}, (P(None, "data"), P(None, "data")))
    sharded = jax.shard_map(
        train, mesh=mesh(8, names=("data",)), in_specs=ins, out_specs=({"a": P(), "b": P()}, P()), check_vma=False
    )
    return jax.jit(sharded), plain, (params, batches)
