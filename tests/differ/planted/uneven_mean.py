"""A mean of means on uneven parts: each device divides by its own count of tokens that aren't masked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import cross_entropy, sgd
from tests.differ.planted.program import integers, mesh, numbers, planted


def lengths_as_mask(dtype: Any, lengths: list[int], width: int) -> Any:
    return (np.arange(width) < np.array(lengths)[:, None]).astype(dtype)


LENGTHS = [8, 7, 1, 2, 8, 6, 1, 1]


@planted("mean of means on uneven parts", twin="plain")
def masked_loss(dtype: Any, bug: bool) -> Any:
    """Rows of 1 to 8 tokens, one a device."""

    def mean(losses: Any, mask: Any) -> Any:
        total, count = jnp.sum(losses * mask), jnp.sum(mask)
        if bug:
            return lax.pmean(total / count, "data")  # planted: masked_loss
        return lax.psum(total, "data") / lax.psum(count, "data")

    def model(w: Any, x: Any, labels: Any, mask: Any) -> Any:
        return mean(cross_entropy(jax.nn.gelu(x @ w["a"]) @ w["b"], labels), mask)

    def plain(w: Any, x: Any, labels: Any, mask: Any) -> Any:
        losses = cross_entropy(jax.nn.gelu(x @ w["a"]) @ w["b"], labels)
        return jnp.sum(losses * mask) / jnp.sum(mask)

    whole = {"a": P(), "b": P()}
    sharded = jax.shard_map(
        model, mesh=mesh(8, names=("data",)), in_specs=(whole, P("data"), P("data"), P("data")), out_specs=P(),
        check_vma=False,
    )  # fmt: skip
    w = {"a": numbers(1, 8, 16, dtype=dtype, scale=0.5), "b": numbers(2, 16, 8, dtype=dtype, scale=2.0)}
    args = w, numbers(3, 8, 8, 8, dtype=dtype), integers(4, 8, 8, 8), lengths_as_mask(dtype, LENGTHS, 8)
    return jax.jit(sharded), plain, args


@planted("mean of means on uneven parts", twin="one")
def masked_training(dtype: Any, bug: bool) -> Any:
    """Loss and gradients of each device's own mean are averaged, as for rows of the same length."""

    def total(w: Any, x: Any, labels: Any, mask: Any) -> Any:
        return jnp.sum(cross_entropy(jnp.tanh(x @ w["a"]) @ w["b"], labels) * mask)

    def step(w: Any, x: Any, labels: Any, mask: Any) -> Any:
        count = jnp.sum(mask)  # planted: masked_training
        count = count if bug else lax.psum(count, "data")

        def loss(w: Any) -> Any:
            return total(w, x, labels, mask) / count  # planted: masked_training

        value, gradients = jax.value_and_grad(loss)(w)  # planted-use: masked_training
        if bug:
            value, gradients = lax.pmean((value, gradients), "data")  # planted: masked_training
        else:
            value, gradients = lax.psum((value, gradients), "data")
        return sgd(w, gradients, 1.0), value  # planted-use: masked_training

    def on(devices: Any) -> Any:
        whole = {"a": P(), "b": P()}
        ins = (whole, P("data"), P("data"), P("data"))
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=(whole, P()), check_vma=False))

    w = {"a": numbers(1, 8, 16, dtype=dtype, scale=0.5), "b": numbers(2, 16, 8, dtype=dtype, scale=1.0)}
    args = w, numbers(3, 8, 8, 8, dtype=dtype), integers(4, 8, 8, 8), lengths_as_mask(dtype, LENGTHS, 8)
    return on(mesh(4, 2)), on(mesh(1, 1)), args


@planted("mean of means on uneven parts", twin="plain")
def weighted_pooling(dtype: Any, bug: bool) -> Any:
    """A sequence that is split over devices is pooled by weights that sum to another number on each."""

    def pool(h: Any, weights: Any) -> Any:
        summed = jnp.einsum("bsd,bs->bd", h, weights)
        if bug:
            local = summed / jnp.sum(weights, axis=1, keepdims=True)  # planted: weighted_pooling
            return lax.pmean(local, "model")  # planted: weighted_pooling
        return lax.psum(summed, "model") / lax.psum(jnp.sum(weights, axis=1, keepdims=True), "model")

    def model(w: Any, x: Any) -> Any:
        weights = jax.nn.sigmoid(3 * (x @ w["gate"]))
        return jnp.tanh(pool(x, weights) @ w["head"])  # planted-use: weighted_pooling

    def plain(w: Any, x: Any) -> Any:
        weights = jax.nn.sigmoid(3 * (x @ w["gate"]))
        weights = weights / jnp.sum(weights, axis=1, keepdims=True)
        return jnp.tanh(jnp.einsum("bsd,bs->bd", x, weights) @ w["head"])

    sharded = jax.shard_map(
        model, mesh=mesh(2, 4), in_specs=({"gate": P(), "head": P()}, P("data", "model")), out_specs=P("data"),
        check_vma=False,
    )  # fmt: skip
    w = {"gate": numbers(1, 8, dtype=dtype), "head": numbers(2, 8, 4, dtype=dtype)}
    return jax.jit(sharded), plain, (w, numbers(3, 4, 8, 8, dtype=dtype))
