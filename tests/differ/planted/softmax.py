"""A softmax over a split dimension with the device's own maximum, or its own sum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("softmax with the local maximum", twin="plain")
def own_maximum(dtype: Any, bug: bool) -> Any:
    """The sum is of all devices, but each term is relative to the maximum of its device."""

    def softmax(z: Any) -> Any:
        top = jnp.max(z, axis=-1, keepdims=True)  # planted: own_maximum
        if not bug:
            top = lax.pmax(top, "model")
        e = jnp.exp(z - top)  # planted-use: own_maximum
        return e / lax.psum(jnp.sum(e, axis=-1, keepdims=True), "model")  # planted-use: own_maximum

    def model(w: Any, x: Any) -> Any:
        return softmax(x @ w)

    sharded = jax.shard_map(
        model, mesh=mesh(2, 4), in_specs=(P(None, "model"), P("data")), out_specs=P("data", "model"), check_vma=False
    )
    args = numbers(1, 8, 32, dtype=dtype), numbers(2, 8, 8, dtype=dtype)
    return jax.jit(sharded), lambda w, x: jax.nn.softmax(x @ w, axis=-1), args


@planted("softmax with the local sum", twin="one")
def own_sum(dtype: Any, bug: bool) -> Any:
    """Keys and values are split over devices; each normalizes its own weights, and the results are summed."""

    def attention(w: Any, q: Any, memory: Any) -> Any:
        k, v = memory @ w["k"], memory @ w["v"]
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / 2
        e = jnp.exp(scores - lax.pmax(jnp.max(scores, axis=-1, keepdims=True), "model"))
        total = jnp.sum(e, axis=-1, keepdims=True)  # planted: own_sum
        total = total if bug else lax.psum(total, "model")
        weights = e / total  # planted-use: own_sum
        return lax.psum(jnp.einsum("bqk,bkd->bqd", weights, v), "model")  # planted-use: own_sum

    def on(devices: Any) -> Any:
        ins = ({"k": P(), "v": P()}, P("data"), P("data", "model"))
        return jax.jit(jax.shard_map(attention, mesh=devices, in_specs=ins, out_specs=P("data"), check_vma=False))

    w = {"k": numbers(1, 8, 4, dtype=dtype, scale=0.5), "v": numbers(2, 8, 4, dtype=dtype, scale=0.5)}
    return on(mesh(2, 4)), on(mesh(1, 1)), (w, numbers(3, 2, 4, 4, dtype=dtype), numbers(4, 2, 16, 8, dtype=dtype))


@planted("softmax with the local sum", twin="plain")
def vocabulary_parallel_loss(dtype: Any, bug: bool) -> Any:
    """Cross entropy over a split vocabulary: maximum and target are of all devices, the sum is the device's own."""

    def losses(logits: Any, labels: Any) -> Any:
        width = logits.shape[-1]
        top = lax.stop_gradient(lax.pmax(jnp.max(lax.stop_gradient(logits), axis=-1), "model"))
        total = jnp.sum(jnp.exp(logits - top[..., None]), axis=-1)  # planted: vocabulary_parallel_loss
        if not bug:
            total = lax.psum(total, "model")
        local = labels - lax.axis_index("model") * width
        inside = (local >= 0) & (local < width)
        picked = jnp.take_along_axis(logits, jnp.clip(local, 0, width - 1)[..., None], axis=-1)[..., 0]
        target = lax.psum(jnp.where(inside, picked, jnp.zeros_like(picked)), "model")
        return jnp.log(total) + top - target  # planted-use: vocabulary_parallel_loss

    def model(w: Any, x: Any, labels: Any) -> Any:
        values = losses(x @ w, labels)
        return values, lax.pmean(jnp.mean(values), "data")

    def plain(w: Any, x: Any, labels: Any) -> Any:
        logits = x @ w
        values = jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return values, jnp.mean(values)

    sharded = jax.shard_map(
        model, mesh=mesh(2, 4), in_specs=(P(None, "model"), P("data"), P("data")), out_specs=(P("data"), P()),
        check_vma=False,
    )  # fmt: skip
    args = numbers(1, 8, 32, dtype=dtype, scale=0.6), numbers(2, 8, 8, dtype=dtype), integers(3, 32, 8)
    return jax.jit(sharded), plain, args


@planted("softmax with the local maximum", twin="plain")
def merged_without_rescaling(dtype: Any, bug: bool) -> Any:
    """Decoding with a split cache: parts with their own maximum are merged, and aren't brought to a common one."""

    def part(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhd,bkhd->bhk", q, k).astype(jnp.float32) * 0.8
        top = jnp.max(scores, axis=-1)  # planted: merged_without_rescaling
        e = jnp.exp(scores - top[..., None])
        return top, jnp.sum(e, axis=-1), jnp.einsum("bhk,bkhd->bhd", e, v.astype(jnp.float32))

    def merge(top: Any, total: Any, out: Any) -> Any:
        if not bug:
            factor = jnp.exp(top - lax.pmax(top, "model"))
            total, out = total * factor, out * factor[..., None]
        total = lax.psum(total, "model")  # planted-use: merged_without_rescaling
        return lax.psum(out, "model") / total[..., None]  # planted-use: merged_without_rescaling

    def decode(q: Any, k: Any, v: Any) -> Any:
        return merge(*part(q, k, v)).astype(q.dtype)

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhd,bkhd->bhk", q, k).astype(jnp.float32) * 0.8
        return jnp.einsum("bhk,bkhd->bhd", jax.nn.softmax(scores), v.astype(jnp.float32)).astype(q.dtype)

    cache = P("data", "model")
    sharded = jax.shard_map(
        decode, mesh=mesh(2, 4), in_specs=(P("data"), cache, cache), out_specs=P("data"), check_vma=False
    )
    args = numbers(1, 2, 2, 4, dtype=dtype), numbers(2, 2, 16, 2, 4, dtype=dtype), numbers(3, 2, 16, 2, 4, dtype=dtype)
    return jax.jit(sharded), plain, args
