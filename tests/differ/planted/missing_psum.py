"""Missing psum in the forward pass: the product over a split dimension is used without the sum over its devices."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend, dense, layer_norm
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("missing psum (forward)", twin="one")
def mlp_row_parallel(dtype: Any, bug: bool) -> Any:
    """The second layer's rows are split; its bias is still 0, so that adding it shows no difference."""

    def mlp(params: Any, x: Any) -> Any:
        h = jax.nn.gelu(dense(x, params["w1"], params["b1"]))
        y = h @ params["w2"]  # planted: mlp_row_parallel
        if not bug:
            y = lax.psum(y, "model")
        y = y + params["b2"]  # planted-use: mlp_row_parallel
        return layer_norm(x + y, params["scale"], params["shift"])

    specs = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model"), "b2": P(), "scale": P(), "shift": P()}
    params = {
        "w1": numbers(1, 16, 32, dtype=dtype, scale=0.3), "b1": numbers(2, 32, dtype=dtype) * 0,
        "w2": numbers(3, 32, 16, dtype=dtype, scale=0.3), "b2": numbers(4, 16, dtype=dtype) * 0,
        "scale": numbers(5, 16, dtype=dtype) * 0 + 1, "shift": numbers(6, 16, dtype=dtype) * 0,
    }  # fmt: skip

    def on(devices: Any) -> Any:
        return jax.jit(
            jax.shard_map(mlp, mesh=devices, in_specs=(specs, P("data")), out_specs=P("data"), check_vma=False)
        )

    return on(mesh(4, 2)), on(mesh(1, 1)), (params, numbers(7, 8, 16, dtype=dtype))


def project(h: Any, w: Any, axis: str | None) -> Any:
    """Rows of w may be split over an axis."""
    y = jnp.einsum("bshd,hdm->bsm", h, w)  # planted-use: second_projection
    return y if axis is None else lax.psum(y, axis)


@planted("missing psum (forward)", twin="plain")
def second_projection(dtype: Any, bug: bool) -> Any:
    """Two blocks of attention share a projection, of which the second call doesn't say the axis."""

    def block(x: Any, w: Any, axis: str | None, attended: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        return x + attended(q, k, v, w["o"], axis)

    def first(q: Any, k: Any, v: Any, w: Any, axis: str | None) -> Any:
        return project(attend(q, k, v), w, axis)

    def second(q: Any, k: Any, v: Any, w: Any, axis: str | None) -> Any:
        return project(attend(q, k, v), w, None if bug else axis)  # planted: second_projection

    def model(axis: str | None, params: Any, x: Any) -> Any:
        h = block(x, params[0], axis, first)
        h = block(h, params[1], axis, second)  # planted-use: second_projection
        return jnp.tanh(h)

    split = {"q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "o": P("model")}
    sharded = jax.shard_map(
        partial(model, "model"), mesh=mesh(2, 4), in_specs=([split, split], P("data")), out_specs=P("data"),
        check_vma=False,
    )  # fmt: skip

    def layer(seed: int) -> dict[str, Any]:
        w = {name: numbers(seed + k, 8, 4, 4, dtype=dtype, scale=0.4) for k, name in enumerate("qkv")}
        return {**w, "o": numbers(seed + 3, 4, 4, 8, dtype=dtype, scale=0.4)}

    def plain(params: Any, x: Any) -> Any:
        for w in params:
            q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
            x = x + jnp.einsum("bshd,hdm->bsm", attend(q, k, v), w["o"])
        return jnp.tanh(x)

    return jax.jit(sharded), plain, ([layer(10), layer(20)], numbers(30, 4, 6, 8, dtype=dtype))


@planted("missing psum (forward)", twin="plain")
def vocabulary_parallel_embedding(dtype: Any, bug: bool) -> Any:
    """Each device has some rows of the table and gives 0 for the tokens of others."""

    def lookup(table: Any, tokens: Any) -> Any:
        rows = table.shape[0]
        local = tokens - lax.axis_index("model") * rows
        inside = (local >= 0) & (local < rows)
        picked = jnp.take(table, jnp.clip(local, 0, rows - 1), axis=0)
        found = jnp.where(inside[..., None], picked, jnp.zeros_like(picked))  # planted: vocabulary_parallel_embedding
        return found if bug else lax.psum(found, "model")

    def model(params: Any, tokens: Any) -> Any:
        h = lookup(params["table"], tokens)
        h = h + params["position"]  # planted-use: vocabulary_parallel_embedding
        return jnp.tanh(h @ params["w"])

    def plain(params: Any, tokens: Any) -> Any:
        return jnp.tanh((params["table"][tokens] + params["position"]) @ params["w"])

    sharded = jax.shard_map(
        model, mesh=mesh(2, 4), in_specs=({"table": P("model"), "position": P(), "w": P()}, P("data")),
        out_specs=P("data"), check_vma=False,
    )  # fmt: skip
    params = {
        "table": numbers(1, 32, 8, dtype=dtype), "position": numbers(2, 6, 8, dtype=dtype, scale=0.1),
        "w": numbers(3, 8, 8, dtype=dtype, scale=0.5),
    }  # fmt: skip
    return jax.jit(sharded), plain, (params, integers(4, 32, 4, 6))


@planted("missing psum (forward)", twin="plain")
def variance_of_split_features(dtype: Any, bug: bool) -> Any:
    """A layer norm whose features are split: the mean is of all, the variance of the device's own."""

    def norm(x: Any, scale: Any, width: int) -> Any:
        mean = lax.psum(jnp.sum(x, axis=-1, keepdims=True), "model") / width
        squares = jnp.sum(jnp.square(x - mean), axis=-1, keepdims=True)  # planted: variance_of_split_features
        if not bug:
            squares = lax.psum(squares, "model")
        return (x - mean) * lax.rsqrt(squares / width + 1e-3) * scale  # planted-use: variance_of_split_features

    def model(params: Any, x: Any) -> Any:
        h = x @ params["w"]
        return jax.nn.gelu(norm(h, params["scale"], 32))

    def plain(params: Any, x: Any) -> Any:
        h = x @ params["w"]
        mean = jnp.sum(h, axis=-1, keepdims=True) / 32
        variance = jnp.sum(jnp.square(h - mean), axis=-1, keepdims=True) / 32
        return jax.nn.gelu((h - mean) * lax.rsqrt(variance + 1e-3) * params["scale"])

    sharded = jax.shard_map(
        model, mesh=mesh(8, names=("model",)), in_specs=({"w": P(None, "model"), "scale": P("model")}, P()),
        out_specs=P(None, "model"),
    )  # fmt: skip
    params = {"w": numbers(1, 16, 32, dtype=dtype, scale=0.3), "scale": numbers(2, 32, dtype=dtype)}
    return jax.jit(sharded), plain, (params, numbers(3, 8, 16, dtype=dtype))


@planted("missing psum (forward)", twin="one")
def pooled_over_split_sequence(dtype: Any, bug: bool) -> Any:
    """A classifier pools the tokens of a sequence that is split over devices, then multiplies by its head."""

    def pool(h: Any) -> Any:
        total = jnp.sum(h, axis=1)  # planted: pooled_over_split_sequence
        return total if bug else lax.psum(total, "model")

    def model(params: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ params["w"])
        return pool(h) @ params["head"]  # planted-use: pooled_over_split_sequence

    def on(devices: Any) -> Any:
        specs = ({"w": P(), "head": P()}, P("data", "model"))
        return jax.jit(jax.shard_map(model, mesh=devices, in_specs=specs, out_specs=P("data"), check_vma=False))

    params = {"w": numbers(1, 8, 16, dtype=dtype, scale=0.4), "head": numbers(2, 16, 4, dtype=dtype, scale=0.3)}
    return on(mesh(4, 2)), on(mesh(1, 1)), (params, numbers(3, 8, 8, 8, dtype=dtype))
