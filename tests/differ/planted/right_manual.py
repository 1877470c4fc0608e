"""Right programs by shard_map: ring attention, tensor and data parallel at once, FSDP, sequence parallel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend, cross_entropy, layer_norm, sgd
from tests.differ.planted.permute import ring
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("right", twin="plain", has_bug=False)
def ring_attention(dtype: Any, bug: bool) -> Any:
    """Without a mask: blocks of keys and values go round, with a running maximum in f32."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        moves = ring("data", 1)

        def body(state: Any, _: Any) -> Any:
            top, total, out, k, v = state
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / 2
            peak = jnp.maximum(top, jnp.max(scores, axis=-1))
            weight, old = jnp.exp(scores - peak[..., None]), jnp.exp(top - peak)
            total = total * old + jnp.sum(weight, axis=-1)
            out = out * old[..., None] + jnp.einsum("bhqk,bkhd->bhqd", weight, v.astype(jnp.float32))
            return (peak, total, out, lax.ppermute(k, "data", moves), lax.ppermute(v, "data", moves)), None

        b, s, h, d = q.shape
        start = jnp.full((b, h, s), -1e30, jnp.float32), jnp.zeros((b, h, s), jnp.float32)
        state = (*start, jnp.zeros((b, h, s, d), jnp.float32), k, v)
        (_, total, out, _, _), _ = lax.scan(body, state, None, length=lax.axis_size("data"))
        return jnp.einsum("bhqd->bqhd", out / total[..., None]).astype(q.dtype)

    split = P(None, "data")
    sharded = jax.shard_map(
        attention, mesh=mesh(8, names=("data",)), in_specs=(split,) * 3, out_specs=split, check_vma=False
    )
    return jax.jit(sharded), attend, tuple(numbers(k, 2, 16, 2, 4, dtype=dtype) for k in range(3))


@planted("right", twin="plain", has_bug=False)
def tensor_and_data_parallel_step(dtype: Any, bug: bool) -> Any:
    """With the check of varying axes on, so that JAX sums the gradients."""

    def forward(w: Any, x: Any, axis: str | None) -> Any:
        h = jax.nn.gelu(x @ w["up"] + w["b1"])
        y = h @ w["down"]
        y = lax.psum(y, axis) if axis else y
        return layer_norm(x + y + w["b2"], 1, 0)

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return lax.pmean(jnp.mean(jnp.square(forward(w, x, "model") - y)), "data")

        value, gradients = jax.value_and_grad(loss)(w)
        return sgd(w, gradients, 0.5), value

    def plain(w: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(lambda w: jnp.mean(jnp.square(forward(w, x, None) - y)))(w)
        return sgd(w, gradients, 0.5), value

    split = {"up": P(None, "model"), "b1": P("model"), "down": P("model"), "b2": P()}
    sharded = jax.shard_map(step, mesh=mesh(4, 2), in_specs=(split, P("data"), P("data")), out_specs=(split, P()))
    w = {
        "up": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b1": numbers(2, 16, dtype=dtype) * 0,
        "down": numbers(3, 16, 8, dtype=dtype, scale=0.4), "b2": numbers(4, 8, dtype=dtype) * 0,
    }  # fmt: skip
    return jax.jit(sharded), plain, (w, numbers(5, 8, 8, dtype=dtype), numbers(6, 8, 8, dtype=dtype))


@planted("right", twin="one", has_bug=False)
def fsdp_layers_in_scan(dtype: Any, bug: bool) -> Any:
    """Each iteration gathers its layer's weights; their gradient is scattered by what a gather's gradient is."""

    def loss(w: Any, x: Any, labels: Any) -> Any:
        @jax.checkpoint
        def body(x: Any, layer: Any) -> Any:
            whole = lax.all_gather(layer, "data", tiled=True)
            return layer_norm(x + jax.nn.gelu(x @ whole), 1, 0), None

        x, _ = lax.scan(body, x, w)
        return jnp.mean(cross_entropy(x, labels))

    def step(w: Any, x: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x, labels)
        return sgd(w, gradients / lax.axis_size("data"), 0.5), lax.pmean(value, "data")

    def on(devices: Any) -> Any:
        split = P(None, "data")
        ins, outs = (split, P("data"), P("data")), (split, P())
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=outs, check_vma=False))

    args = numbers(1, 3, 8, 8, dtype=dtype, scale=0.5), numbers(2, 16, 8, dtype=dtype), integers(3, 8, 16)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args


@planted("right", twin="plain", has_bug=False)
def sequence_parallel_block(dtype: Any, bug: bool) -> Any:
    """Gather in front of the split layer, scatter of sums behind it; norms work on the device's own tokens."""

    def block(w: Any, x: Any) -> Any:
        n = lax.all_gather(layer_norm(x, w["scale"], 0), "model", axis=1, tiled=True)
        h = jax.nn.gelu(n @ w["up"])
        return x + lax.psum_scatter(h @ w["down"], "model", scatter_dimension=1, tiled=True)

    def plain(w: Any, x: Any) -> Any:
        return x + jax.nn.gelu(layer_norm(x, w["scale"], 0) @ w["up"]) @ w["down"]

    split = {"scale": P(), "up": P(None, "model"), "down": P("model")}
    both = P("data", "model")
    sharded = jax.shard_map(block, mesh=mesh(2, 4), in_specs=(split, both), out_specs=both, check_vma=False)
    w = {
        "scale": numbers(1, 8, dtype=dtype), "up": numbers(2, 8, 16, dtype=dtype, scale=0.4),
        "down": numbers(3, 16, 8, dtype=dtype, scale=0.4),
    }  # fmt: skip
    return jax.jit(sharded), plain, (w, numbers(4, 4, 8, 8, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def manual_inside_automatic(dtype: Any, bug: bool) -> Any:
    """A jitted function with a part by shard_map between two automatic ones."""
    line = mesh(8, names=("data",))

    def centred(x: Any) -> Any:
        return x - lax.pmean(jnp.mean(x, axis=0), "data")

    @jax.jit
    def model(w: Any, x: Any) -> Any:
        h = jax.nn.gelu(x @ w)
        h = jax.shard_map(centred, mesh=line, in_specs=P("data"), out_specs=P("data"))(h)
        return jnp.sum(jnp.square(h), axis=-1), h @ w.T

    def plain(w: Any, x: Any) -> Any:
        h = jax.nn.gelu(x @ w)
        h = h - jnp.mean(h, axis=0)
        return jnp.sum(jnp.square(h), axis=-1), h @ w.T

    return model, plain, (numbers(1, 8, 16, dtype=dtype, scale=0.4), numbers(2, 16, 8, dtype=dtype))
