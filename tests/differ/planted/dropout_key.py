"""One key on all devices: each draws the same numbers, where the unsharded program has others for each part."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import dense, layer_norm
from tests.differ.planted.program import key, mesh, numbers, planted

KEPT = 0.75


def dropped(x: Any, mask: Any) -> Any:
    return jnp.where(mask, x / jnp.asarray(KEPT, x.dtype), jnp.zeros_like(x))


@planted("one dropout key", twin="plain")
def key_of_batch_shard(dtype: Any, bug: bool) -> Any:
    """Data parallel: the key should be folded with the device's number."""

    def dropout(k: Any, x: Any) -> Any:
        if not bug:
            k = jax.random.fold_in(k, lax.axis_index("data"))
        mask = jax.random.bernoulli(k, KEPT, x.shape)  # planted: key_of_batch_shard
        return dropped(x, mask)  # planted-use: key_of_batch_shard

    def model(w: Any, k: Any, x: Any) -> Any:
        h = jax.nn.gelu(dense(x, w["a"], w["b"]))
        return dropout(k, h) @ w["c"]

    def plain(w: Any, k: Any, x: Any) -> Any:
        h = jax.nn.gelu(x @ w["a"] + w["b"])
        masks = [jax.random.bernoulli(jax.random.fold_in(k, d), KEPT, (2, 16)) for d in range(8)]
        return dropped(h, jnp.concatenate(masks)) @ w["c"]

    whole = {"a": P(), "b": P(), "c": P()}
    sharded = jax.shard_map(
        model, mesh=mesh(8, names=("data",)), in_specs=(whole, P(), P("data")), out_specs=P("data"), check_vma=False
    )
    w = {
        "a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, dtype=dtype) * 0,
        "c": numbers(3, 16, 4, dtype=dtype, scale=0.4),
    }  # fmt: skip
    return jax.jit(sharded), plain, (w, key(7), numbers(4, 16, 8, dtype=dtype))


@planted("one dropout key", twin="plain")
def own_part_of_mask(dtype: Any, bug: bool) -> Any:
    """The mask of the whole batch is drawn everywhere and cut by the device's number; the wrong code draws the part."""

    def mask_of(k: Any, shape: Any) -> Any:
        if bug:
            return jax.random.bernoulli(k, KEPT, shape)  # planted: own_part_of_mask
        whole = jax.random.bernoulli(k, KEPT, (shape[0] * lax.axis_size("data"), *shape[1:]))
        return lax.dynamic_slice_in_dim(whole, lax.axis_index("data") * shape[0], shape[0])

    def block(w: Any, k: Any, x: Any) -> Any:
        h = layer_norm(x, 1, 0) @ w
        return x + dropped(h, mask_of(k, h.shape))  # planted-use: own_part_of_mask

    def model(w: Any, k: Any, x: Any) -> Any:
        first, second = jax.random.split(k)
        return block(w[1], second, block(w[0], first, x))

    def plain(w: Any, k: Any, x: Any) -> Any:
        for weight, k in zip(w, jax.random.split(k), strict=True):  # noqa: B020
            h = layer_norm(x, 1, 0) @ weight
            x = x + dropped(h, jax.random.bernoulli(k, KEPT, x.shape))
        return x

    sharded = jax.shard_map(
        model, mesh=mesh(4, 2), in_specs=([P(), P()], P(), P("data")), out_specs=P("data"), check_vma=False
    )
    w = [numbers(1, 8, 8, dtype=dtype, scale=0.4), numbers(2, 8, 8, dtype=dtype, scale=0.4)]
    return jax.jit(sharded), plain, (w, key(11), numbers(3, 8, 8, dtype=dtype))


@planted("one dropout key", twin="plain")
def noise_in_scan(dtype: Any, bug: bool) -> Any:
    """Noise in each step of a loop: the key has the step's number, but not the device's."""

    def noise(k: Any, step: Any, shape: Any) -> Any:
        k = jax.random.fold_in(k, step)
        if not bug:
            k = jax.random.fold_in(k, lax.axis_index("data"))
        drawn = jax.random.uniform(k, shape, jnp.float32, -1, 1)  # planted: noise_in_scan
        return drawn.astype(dtype)

    def walk(k: Any, x: Any) -> Any:
        def body(x: Any, step: Any) -> Any:
            x = x * jnp.asarray(0.5, x.dtype) + noise(k, step, x.shape)  # planted-use: noise_in_scan
            return x, lax.pmean(jnp.mean(x), "data")

        return lax.scan(body, x, jnp.arange(3))

    def plain(k: Any, x: Any) -> Any:
        means = []
        for step in range(3):
            keys = [jax.random.fold_in(jax.random.fold_in(k, step), d) for d in range(8)]
            drawn = jnp.concatenate([jax.random.uniform(k, (2, 8), jnp.float32, -1, 1) for k in keys])
            x = x * jnp.asarray(0.5, x.dtype) + drawn.astype(dtype)
            means.append(jnp.mean(x))
        return x, jnp.stack(means)

    sharded = jax.shard_map(
        walk, mesh=mesh(8, names=("data",)), in_specs=(P(), P("data")), out_specs=(P("data"), P()), check_vma=False
    )
    return jax.jit(sharded), plain, (key(3), numbers(3, 16, 8, dtype=dtype))
