"""psum where pmean is meant: as many times too large as the axis has devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import cross_entropy, dense, sgd
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("psum for pmean", twin="one")
def summed_gradients(dtype: Any, bug: bool) -> Any:
    """Adam's first step, of which the direction doesn't change by a factor; the moments do."""

    def loss(w: Any, x: Any, labels: Any) -> Any:
        h = jax.nn.relu(dense(x, w["w1"], w["b1"]))
        return jnp.mean(cross_entropy(dense(h, w["w2"], w["b2"]), labels))

    def reduce(gradients: Any) -> Any:
        if bug:
            return lax.psum(gradients, ("data",))  # planted: summed_gradients
        return lax.pmean(gradients, ("data",))

    def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
        m = m * jnp.asarray(0.75, m.dtype) + g * jnp.asarray(0.25, g.dtype)  # planted-use: summed_gradients
        v = v * jnp.asarray(0.75, v.dtype) + jnp.square(g) * jnp.asarray(0.25, g.dtype)  # planted-use: summed_gradients
        return p - jnp.asarray(0.1, p.dtype) * m / (jnp.sqrt(v) + jnp.asarray(0.05, v.dtype)), m, v

    def step(w: Any, first: Any, second: Any, x: Any, labels: Any) -> Any:
        gradients = reduce(jax.grad(loss)(w, x, labels))
        triples = {name: adam(w[name], gradients[name], first[name], second[name]) for name in w}
        return tuple({name: triple[k] for name, triple in triples.items()} for k in range(3))

    w = {
        "w1": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b1": numbers(2, 16, dtype=dtype) * 0,
        "w2": numbers(3, 16, 4, dtype=dtype, scale=0.4), "b2": numbers(4, 4, dtype=dtype) * 0,
    }  # fmt: skip
    zeros = jax.tree.map(lambda p: p * 0, w)

    def on(devices: Any) -> Any:
        whole = {name: P() for name in w}
        ins = (whole, whole, whole, P("data"), P("data"))
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=(whole,) * 3, check_vma=False))

    args = w, zeros, zeros, numbers(5, 16, 8, dtype=dtype), integers(6, 4, 16)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args


@planted("psum for pmean", twin="plain")
def batch_norm_mean(dtype: Any, bug: bool) -> Any:
    """The statistics of a batch norm: the mean of squares is averaged over devices, the mean summed."""

    def statistics(x: Any) -> Any:
        mean = jnp.mean(x, axis=0)
        mean = lax.psum(mean, "data") if bug else lax.pmean(mean, "data")  # planted: batch_norm_mean
        square = lax.pmean(jnp.mean(jnp.square(x), axis=0), "data")
        return mean, square

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        mean, square = statistics(x)
        variance = jnp.maximum(square - jnp.square(mean), 0)  # planted-use: batch_norm_mean
        return (x - mean) * lax.rsqrt(variance + 1e-2) * scale + shift, mean, variance  # planted-use: batch_norm_mean

    def model(w: Any, running: Any, x: Any) -> Any:
        h, mean, variance = norm(x @ w["w"], w["scale"], w["shift"])
        running = 0.75 * running + 0.25 * jnp.stack([mean, variance])
        return jax.nn.relu(h), running.astype(h.dtype)

    def plain(w: Any, running: Any, x: Any) -> Any:
        h = x @ w["w"]
        mean, square = jnp.mean(h, axis=0), jnp.mean(jnp.square(h), axis=0)
        variance = jnp.maximum(square - jnp.square(mean), 0)
        y = (h - mean) * lax.rsqrt(variance + 1e-2) * w["scale"] + w["shift"]
        return jax.nn.relu(y), (0.75 * running + 0.25 * jnp.stack([mean, variance])).astype(h.dtype)

    whole = {"w": P(), "scale": P(), "shift": P()}
    sharded = jax.shard_map(
        model, mesh=mesh(8, names=("data",)), in_specs=(whole, P(), P("data")), out_specs=(P("data"), P()),
        check_vma=False,
    )  # fmt: skip
    w = {
        "w": numbers(1, 8, 8, dtype=dtype, scale=0.5), "scale": numbers(2, 8, dtype=dtype) * 0 + 1,
        "shift": numbers(3, 8, dtype=dtype) * 0,
    }  # fmt: skip
    x = numbers(5, 16, 8, dtype=dtype) + numbers(6, 8, dtype=dtype, scale=0.2)
    return jax.jit(sharded), plain, (w, numbers(4, 2, 8, dtype=dtype) * 0, x)


@planted("psum for pmean", twin="one")
def reported_loss(dtype: Any, bug: bool) -> Any:
    """The update is right; the loss that is reported beside it is eight times too large."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.square(x @ w - y))

    def step(w: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        metrics = {"loss": value, "gradient norm": jnp.sqrt(jnp.sum(jnp.square(lax.pmean(gradient, "data"))))}
        metrics["loss"] = lax.psum(value, "data") if bug else lax.pmean(value, "data")  # planted: reported_loss
        return sgd(w, lax.pmean(gradient, "data"), 0.5), metrics

    def on(devices: Any) -> Any:
        outs = (P(), {"loss": P(), "gradient norm": P()})
        ins = (P(), P("data"), P("data"))
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=outs, check_vma=False))

    args = numbers(1, 8, 4, dtype=dtype, scale=0.4), numbers(2, 16, 8, dtype=dtype), numbers(3, 16, 4, dtype=dtype)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args
