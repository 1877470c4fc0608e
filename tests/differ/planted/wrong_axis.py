"""The wrong axis of a mesh of two: a sum, a mean or a gather over "data" where "model" is meant, or the other way."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend, dense, layer_norm, sgd
from tests.differ.planted.program import mesh, numbers, planted


@planted("wrong axis", twin="one")
def sum_over_data(dtype: Any, bug: bool) -> Any:
    """The partial products of the tensor parallel layer are summed over the devices of the batch."""
    axis = "data" if bug else "model"

    def mlp(w: Any, x: Any) -> Any:
        h = jax.nn.gelu(dense(x, w["up"], w["b1"]))
        y = lax.psum(h @ w["down"], axis)  # planted: sum_over_data
        return x + y + w["b2"]  # planted-use: sum_over_data

    def on(devices: Any) -> Any:
        split = {"up": P(None, "model"), "b1": P("model"), "down": P("model"), "b2": P()}
        return jax.jit(
            jax.shard_map(mlp, mesh=devices, in_specs=(split, P("data")), out_specs=P("data"), check_vma=False)
        )

    w = {
        "up": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b1": numbers(2, 16, dtype=dtype) * 0,
        "down": numbers(3, 16, 8, dtype=dtype, scale=0.4), "b2": numbers(4, 8, dtype=dtype) * 0,
    }  # fmt: skip
    return on(mesh(4, 2)), on(mesh(1, 1)), (w, numbers(5, 8, 8, dtype=dtype))


@planted("wrong axis", twin="one")
def gradients_over_model(dtype: Any, bug: bool) -> Any:
    """Data parallel over "data", parameters of which each device of "model" has a part; the mean goes over "model"."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.sum(jnp.square(jnp.tanh(x @ w) - y), axis=-1))

    def step(w: Any, x: Any, y: Any) -> Any:
        gradient = jax.grad(loss)(w, x, y)
        gradient = lax.pmean(gradient, "model" if bug else "data")  # planted: gradients_over_model
        return w - jnp.asarray(2.0, w.dtype) * gradient  # planted-use: gradients_over_model

    def on(devices: Any) -> Any:
        ins = (P(None, "model"), P("data"), P("data", "model"))
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=P(None, "model"), check_vma=False))

    args = numbers(1, 8, 8, dtype=dtype, scale=0.4), numbers(2, 16, 8, dtype=dtype), numbers(3, 16, 8, dtype=dtype)
    return on(mesh(4, 2)), on(mesh(1, 1)), args


@planted("wrong axis", twin="plain")
def values_gathered_over_data(dtype: Any, bug: bool) -> Any:
    """Sequences are split over "model". Keys are gathered over it, values over "data": the shapes are the same."""

    def attention(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        k = lax.all_gather(k, "model", axis=1, tiled=True)
        v = gathered(v)
        y = attend(q, k, v)  # planted-use: values_gathered_over_data
        return layer_norm(x + jnp.einsum("bshd,hdm->bsm", y, w["o"]), 1, 0)

    def gathered(v: Any) -> Any:
        return lax.all_gather(v, "data" if bug else "model", axis=1, tiled=True)  # planted: values_gathered_over_data

    def plain(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        return layer_norm(x + jnp.einsum("bshd,hdm->bsm", attend(q, k, v), w["o"]), 1, 0)

    whole = {name: P() for name in "qkvo"}
    grid = mesh(2, 2)
    sharded = jax.shard_map(
        attention, mesh=grid, in_specs=(whole, P("data", "model")), out_specs=P("data", "model"), check_vma=False
    )
    w = {name: numbers(k, 8, 2, 4, dtype=dtype, scale=0.4) for k, name in enumerate("qkv")}
    w["o"] = numbers(3, 2, 4, 8, dtype=dtype, scale=0.4)
    return jax.jit(sharded), plain, (w, numbers(4, 4, 8, 8, dtype=dtype))


@planted("wrong axis", twin="plain")
def scatter_over_data(dtype: Any, bug: bool) -> Any:
    """ZeRO on a square mesh: gradients are summed and scattered over "data"; one layer's go over "model"."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.sum(jnp.square(jnp.tanh(x @ w["a"]) @ w["b"] - y)) / 64

    def scattered(name: str, gradient: Any) -> Any:
        axis, other = ("model", "data") if bug and name == "a" else ("data", "model")
        part = lax.psum_scatter(gradient, axis, tiled=True)  # planted: scatter_over_data
        return lax.psum(part, other)  # planted: scatter_over_data

    def moved(m: Any, g: Any) -> Any:
        return m * jnp.asarray(0.9, m.dtype) + g  # planted-use: scatter_over_data

    def gather(m: Any) -> Any:
        return lax.all_gather(m, "data", tiled=True)  # planted-use: scatter_over_data

    def step(w: Any, momentum: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(w, x, y)
        shards = {name: scattered(name, g) for name, g in gradients.items()}
        momentum = jax.tree.map(moved, momentum, shards)  # planted-use: scatter_over_data
        whole = jax.tree.map(gather, momentum)  # planted-use: scatter_over_data
        return sgd(w, whole, 0.5), momentum  # planted-use: scatter_over_data

    def plain(w: Any, momentum: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(w, x, y)
        momentum = jax.tree.map(lambda m, g: m * jnp.asarray(0.9, m.dtype) + g, momentum, gradients)
        return sgd(w, momentum, 0.5), momentum

    whole, split = {"a": P(), "b": P()}, {"a": P("data"), "b": P("data")}
    batch = P(("data", "model"))
    sharded = jax.shard_map(
        step, mesh=mesh(2, 2), in_specs=(whole, split, batch, batch), out_specs=(whole, split), check_vma=False
    )
    w = {"a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, 4, dtype=dtype, scale=0.4)}
    momentum = {"a": numbers(3, 8, 16, dtype=dtype, scale=0.1), "b": numbers(4, 16, 4, dtype=dtype, scale=0.1)}
    return jax.jit(sharded), plain, (w, momentum, numbers(5, 16, 8, dtype=dtype), numbers(6, 16, 4, dtype=dtype))
