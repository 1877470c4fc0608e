"""The same kinds of bugs inside of remat, scan, vmap, cond and while, and in functions that are called twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import layer_norm
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("missing psum (forward)", twin="one")
def remat_in_scan(dtype: Any, bug: bool) -> Any:
    """A training step of checkpointed layers in a scan, whose second product isn't summed."""

    @jax.checkpoint
    def layer(x: Any, w: Any) -> Any:
        h = jax.nn.gelu(shared(x) @ w["up"])
        y = h @ w["down"]  # planted: remat_in_scan
        y = y if bug else summed(y)
        return x + y + w["bias"]  # planted-use: remat_in_scan

    def loss(w: Any, x: Any, y: Any) -> Any:
        x, _ = lax.scan(lambda x, w: (layer(x, w), None), x, w)
        return jnp.mean(jnp.square(layer_norm(x, 1, 0) - y))  # planted-use: remat_in_scan

    def step(w: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x, y)
        gradients = lax.pmean(gradients, "data")
        return jax.tree.map(lambda p, g: p - jnp.asarray(0.5, p.dtype) * g, w, gradients), lax.pmean(value, "data")

    def on(devices: Any) -> Any:
        split = {"up": P(None, None, "model"), "down": P(None, "model"), "bias": P()}
        ins, outs = (split, P("data"), P("data")), (split, P())
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=outs, check_vma=False))

    w = {
        "up": numbers(1, 2, 8, 16, dtype=dtype, scale=0.4), "down": numbers(2, 2, 16, 8, dtype=dtype, scale=0.4),
        "bias": numbers(3, 2, 8, dtype=dtype) * 0,
    }  # fmt: skip
    return on(mesh(4, 2)), on(mesh(1, 1)), (w, numbers(4, 8, 8, dtype=dtype), numbers(5, 8, 8, dtype=dtype))


@jax.custom_vjp
def summed(x: Any) -> Any:
    """psum over "model", whose gradient is the gradient on each device; its caller's input varies over "model"."""
    return lax.psum(x, "model")


@jax.custom_vjp
def shared(x: Any) -> Any:
    """x, which is the same over "model"; its gradient is the sum of those of the devices."""
    return x


summed.defvjp(lambda x: (lax.psum(x, "model"), None), lambda _, g: (g,))
shared.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(g, "model"),))


@planted("missing psum (forward)", twin="plain")
def experts_by_vmap(dtype: Any, bug: bool) -> Any:
    """Experts by vmap, each of which has its hidden features split over devices."""

    def expert(w: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ w["up"])
        y = h @ w["down"]  # planted: experts_by_vmap
        return y if bug else lax.psum(y, "model")

    def model(w: Any, gate: Any, x: Any) -> Any:
        weights = jax.nn.softmax(x @ gate, axis=-1)
        ys = jax.vmap(expert, in_axes=(0, None))(w, x)
        ys = jnp.square(ys)  # planted-use: experts_by_vmap
        return jnp.einsum("te,etm->tm", weights, ys)  # planted-use: experts_by_vmap

    def plain(w: Any, gate: Any, x: Any) -> Any:
        weights = jax.nn.softmax(x @ gate, axis=-1)
        h = jax.nn.relu(jnp.einsum("tm,emh->eth", x, w["up"]))
        return jnp.einsum("te,etm->tm", weights, jnp.square(jnp.einsum("eth,ehm->etm", h, w["down"])))

    split = {"up": P(None, None, "model"), "down": P(None, "model")}
    sharded = jax.shard_map(
        model, mesh=mesh(2, 4), in_specs=(split, P(), P("data")), out_specs=P("data"), check_vma=False
    )
    w = {"up": numbers(1, 4, 8, 16, dtype=dtype, scale=0.4), "down": numbers(2, 4, 16, 8, dtype=dtype, scale=0.4)}
    return jax.jit(sharded), plain, (w, numbers(3, 8, 4, dtype=dtype), numbers(4, 8, 8, dtype=dtype))


@planted("wrong axis", twin="plain")
def helper_called_twice(dtype: Any, bug: bool) -> Any:
    """One function reduces over the axis that it is given; the second of its two callers gives it the other one."""

    def mean_of(x: Any, axis: str | None) -> Any:
        local = jnp.mean(x, axis=-1, keepdims=True)
        return lax.pmean(local, axis) if axis else local  # planted-use: helper_called_twice

    def norm(x: Any, axis: str | None) -> Any:
        mean = mean_of(x, axis)
        other = "data" if bug else axis
        variance = mean_of(jnp.square(x - mean), axis and other)  # planted: helper_called_twice
        return (x - mean) * lax.rsqrt(variance + 1e-3)  # planted-use: helper_called_twice

    def model(axis: str | None, w: Any, x: Any) -> Any:
        return jax.nn.gelu(norm(x @ w, axis))

    def plain(w: Any, x: Any) -> Any:
        h = x @ w
        centred = h - jnp.mean(h, axis=-1, keepdims=True)
        return jax.nn.gelu(centred * lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-3))

    sharded = jax.shard_map(
        partial(model, "model"), mesh=mesh(4, 2), in_specs=(P(None, "model"), P("data")),
        out_specs=P("data", "model"), check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), plain, (numbers(1, 8, 8, dtype=dtype), numbers(2, 8, 8, dtype=dtype))


@planted("psum for pmean", twin="one")
def in_a_branch(dtype: Any, bug: bool) -> Any:
    """Gradients that are too long are cut by the mean of the devices' norms in one branch of a cond: by their sum."""

    def shortened(g: Any) -> Any:
        norm = jnp.sqrt(jnp.sum(jnp.square(g)))
        average = lax.psum(norm, "data") if bug else lax.pmean(norm, "data")  # planted: in_a_branch
        return g / average  # planted-use: in_a_branch

    def step(w: Any, x: Any) -> Any:
        g = lax.pmean(jax.grad(lambda w: jnp.mean(jnp.square(jnp.tanh(x @ w))))(w), "data")
        long = jnp.sum(jnp.square(g)) > 1e-4
        return w - lax.cond(long, shortened, lambda g: g, g)  # planted-use: in_a_branch

    def on(devices: Any) -> Any:
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=(P(), P("data")), out_specs=P(), check_vma=False))

    args = numbers(1, 8, 8, dtype=dtype, scale=0.5), numbers(2, 16, 8, dtype=dtype)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args


@planted("mean of means on uneven parts", twin="plain")
def accumulated_microbatches(dtype: Any, bug: bool) -> Any:
    """Microbatches in a scan, each with its own number of tokens: the mean over them is of means."""

    def total(w: Any, x: Any, mask: Any) -> Any:
        return jnp.sum(jnp.square(jnp.tanh(x @ w)) * mask[..., None])

    def step(w: Any, x: Any, mask: Any) -> Any:
        def body(state: Any, batch: Any) -> Any:
            gradient, count = state
            x, mask = batch
            g, n = jax.grad(total)(w, x, mask), jnp.sum(mask)
            g = g / jnp.maximum(n, 1) if bug else g  # planted: accumulated_microbatches
            return (gradient + g, count + n), None  # planted-use: accumulated_microbatches

        (gradient, count), _ = lax.scan(body, (jnp.zeros_like(w), jnp.zeros((), w.dtype)), (x, mask))
        if bug:
            return w - 4 * lax.pmean(gradient, "data") / x.shape[0]  # planted: accumulated_microbatches
        return w - 4 * lax.psum(gradient, "data") / lax.psum(count, "data")

    def plain(w: Any, x: Any, mask: Any) -> Any:
        return w - 4 * jax.grad(total)(w, x, mask) / jnp.sum(mask)

    sharded = jax.shard_map(
        step, mesh=mesh(4, names=("data",)), in_specs=(P(), P(None, "data"), P(None, "data")), out_specs=P(),
        check_vma=False,
    )  # fmt: skip
    lengths = integers(3, 8, 2, 8) + 1
    mask = (jnp.arange(8) < lengths[..., None]).astype(dtype)
    return (
        jax.jit(sharded),
        plain,
        (numbers(1, 8, 8, dtype=dtype, scale=0.7), numbers(2, 2, 8, 8, 8, dtype=dtype), mask),
    )


@planted("doubled psum", twin="one")
def twice_in_a_while(dtype: Any, bug: bool) -> Any:
    """A while loop normalizes a vector until it has settled; its norm is summed by the function and by the loop."""

    def norm(x: Any) -> Any:
        return lax.psum(jnp.sum(jnp.square(x)), "model")

    def settle(a: Any, x: Any) -> Any:
        def going(state: Any) -> Any:
            return state[0] < 3

        def body(state: Any) -> Any:
            i, x = state
            whole = lax.all_gather(x, "model", tiled=True)
            y = jnp.tanh(a @ whole)
            size = norm(y)
            if bug:
                size = lax.psum(size, "model")  # planted: twice_in_a_while
            return i + 1, y * lax.rsqrt(size + 1e-3)  # planted-use: twice_in_a_while

        return lax.while_loop(going, body, (0, x))[1]

    def on(devices: Any) -> Any:
        ins = (P("model"), P("model"))
        return jax.jit(jax.shard_map(settle, mesh=devices, in_specs=ins, out_specs=P("model"), check_vma=False))

    args = numbers(1, 16, 16, dtype=dtype, scale=0.5), numbers(2, 16, dtype=dtype)
    return on(mesh(8, names=("model",))), on(mesh(1, names=("model",))), args
