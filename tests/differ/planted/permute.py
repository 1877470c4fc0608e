"""ppermute the wrong way round the ring."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend
from tests.differ.planted.program import mesh, numbers, planted


def ring(axis: str, step: int) -> Any:
    n = lax.axis_size(axis)
    return [(d, (d + step) % n) for d in range(n)]


@planted("ppermute the wrong way", twin="plain")
def upwind_neighbour(dtype: Any, bug: bool) -> Any:
    """A step of advection takes the last cell of the device on the left; the wrong one that of the one on the right."""

    def from_left(u: Any) -> Any:
        last = u[-1:]
        return lax.ppermute(last, "data", ring("data", -1 if bug else 1))  # planted: upwind_neighbour

    def step(u: Any) -> Any:
        padded = jnp.concatenate([from_left(u), u])  # planted-use: upwind_neighbour
        return u - jnp.asarray(0.5, u.dtype) * (u - padded[:-1])

    def plain(u: Any) -> Any:
        return u - jnp.asarray(0.5, u.dtype) * (u - jnp.roll(u, 1))

    sharded = jax.shard_map(step, mesh=mesh(8, names=("data",)), in_specs=P("data"), out_specs=P("data"))
    return jax.jit(sharded), plain, (numbers(1, 32, dtype=dtype),)


@planted("ppermute the wrong way", twin="plain")
def ring_attention_blocks(dtype: Any, bug: bool) -> Any:
    """Causal ring attention: blocks of keys travel to the right, the mask's block number is counted for the left."""

    def scores_of(q: Any, k: Any, row: Any, column: Any) -> Any:
        n = q.shape[1]
        rows, columns = row * n + jnp.arange(n), column * n + jnp.arange(n)
        scores = jnp.einsum("bqd,bkd->bqk", q, k).astype(jnp.float32) / 2  # planted-use: ring_attention_blocks
        return jnp.where(rows[:, None] >= columns, scores, -1e4)  # planted-use: ring_attention_blocks

    def attention(q: Any, k: Any, v: Any) -> Any:
        size, me = lax.axis_size("data"), lax.axis_index("data")
        way = -1 if bug else 1
        moves = ring("data", way)

        def body(i: Any, state: Any) -> Any:
            top, total, out, k, v = state
            block = (me - i) % size
            scores = scores_of(q, k, me, block)  # planted-use: ring_attention_blocks
            peak = jnp.maximum(top, jnp.max(scores, axis=-1))
            weight, old = jnp.exp(scores - peak[..., None]), jnp.exp(top - peak)
            total = total * old + jnp.sum(weight, axis=-1)
            out = out * old[..., None] + jnp.einsum("bqk,bkd->bqd", weight, v.astype(jnp.float32))
            k = lax.ppermute(k, "data", moves)  # planted: ring_attention_blocks
            v = lax.ppermute(v, "data", moves)  # planted: ring_attention_blocks
            return peak, total, out, k, v

        start = jnp.full(q.shape[:2], -1e30, jnp.float32), jnp.zeros(q.shape[:2], jnp.float32)
        state = (*start, jnp.zeros(q.shape, jnp.float32), k, v)
        _, total, out, _, _ = lax.fori_loop(0, size, body, state)
        return (out / total[..., None]).astype(q.dtype)

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", q, k).astype(jnp.float32) / 2
        scores = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), scores, -1e4)
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v.astype(jnp.float32)).astype(q.dtype)

    split = P(None, "data")
    sharded = jax.shard_map(
        attention, mesh=mesh(8, names=("data",)), in_specs=(split,) * 3, out_specs=split, check_vma=False
    )
    return jax.jit(sharded), plain, tuple(numbers(k, 2, 16, 4, dtype=dtype) for k in range(3))


@planted("ppermute the wrong way", twin="plain")
def shifted_targets(dtype: Any, bug: bool) -> Any:
    """Sequence parallel language model: a device's last target is the first token of the next device."""

    def next_tokens(x: Any) -> Any:
        first = lax.ppermute(x[:, :1], "model", ring("model", 1 if bug else -1))  # planted: shifted_targets
        return jnp.concatenate([x[:, 1:], first], axis=1)  # planted-use: shifted_targets

    def loss(w: Any, x: Any) -> Any:
        predicted = jnp.tanh(x @ w)
        error = jnp.square(predicted - next_tokens(x))  # planted-use: shifted_targets
        return lax.pmean(jnp.mean(error), ("data", "model")), jnp.mean(error, axis=-1)

    def plain(w: Any, x: Any) -> Any:
        error = jnp.square(jnp.tanh(x @ w) - jnp.roll(x, -1, axis=1))
        return jnp.mean(error), jnp.mean(error, axis=-1)

    sharded = jax.shard_map(
        loss, mesh=mesh(2, 4), in_specs=(P(), P("data", "model")), out_specs=(P(), P("data", "model")),
        check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), plain, (numbers(1, 8, 8, dtype=dtype, scale=0.4), numbers(2, 4, 16, 8, dtype=dtype))


@planted("ppermute the wrong way", twin="plain")
def gathered_by_a_ring(dtype: Any, bug: bool) -> Any:
    """A product whose rows are gathered while they are used: shards go round the ring, and are put at the place of the
    device that they would be of, went they the other way."""

    def matmul(x: Any, w: Any) -> Any:
        n, me = lax.axis_size("model"), lax.axis_index("model")
        rows = x.shape[0]
        out = jnp.zeros((rows * n, w.shape[1]), x.dtype)
        for step in range(n):
            source = (me + step) % n
            out = lax.dynamic_update_slice_in_dim(out, x @ w, source * rows, axis=0)  # planted-use: gathered_by_a_ring
            if step < n - 1:
                x = lax.ppermute(x, "model", ring("model", 1 if bug else -1))  # planted: gathered_by_a_ring
        return out

    sharded = jax.shard_map(
        matmul, mesh=mesh(2, 4), in_specs=(P("model"), P(None, "model")), out_specs=P(None, "model"), check_vma=False
    )
    return jax.jit(sharded), jnp.matmul, (numbers(1, 8, 8, dtype=dtype), numbers(2, 8, 16, dtype=dtype))


@planted("ppermute the wrong way", twin="plain")
def pipeline_stages(dtype: Any, bug: bool) -> Any:
    """Four stages in a ring, eight microbatches: each stage hands what it has computed to the next."""
    stages, count = 4, 6

    def pipeline(w: Any, xs: Any) -> Any:
        me = lax.axis_index("model")
        w = w[0]

        def turn(state: Any, t: Any) -> Any:
            entering = xs[jnp.minimum(t, count - 1)]
            y = jnp.tanh(jnp.where(me == 0, entering, state) @ w)  # planted-use: pipeline_stages
            handed = lax.ppermute(y, "model", ring("model", -1 if bug else 1))  # planted: pipeline_stages
            return handed, y

        _, ys = lax.scan(turn, jnp.zeros_like(xs[0]), jnp.arange(count + stages - 1))
        last = jnp.where(me == stages - 1, ys[stages - 1 :], jnp.zeros_like(xs))
        return lax.psum(last, "model")  # planted-use: pipeline_stages

    def plain(w: Any, xs: Any) -> Any:
        for k in range(stages):
            xs = jnp.tanh(xs @ w[k])
        return xs

    sharded = jax.shard_map(
        pipeline, mesh=mesh(2, 4), in_specs=(P("model"), P(None, "data")), out_specs=P(None, "data"), check_vma=False
    )
    w = numbers(1, stages, 8, 8, dtype=dtype, scale=0.5)
    return jax.jit(sharded), plain, (w, numbers(2, count, 4, 8, dtype=dtype))


@planted("ppermute the wrong way", twin="plain")
def attention_of_left_neighbour(dtype: Any, bug: bool) -> Any:
    """Local attention: queries see their own block and the one before it, round the ring."""

    def attention(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        way = -1 if bug else 1
        before = [lax.ppermute(a, "model", ring("model", way)) for a in (k, v)]  # planted: attention_of_left_neighbour
        k = jnp.concatenate([before[0], k], axis=1)  # planted-use: attention_of_left_neighbour
        v = jnp.concatenate([before[1], v], axis=1)  # planted-use: attention_of_left_neighbour
        return attend(q, k, v)  # planted-use: attention_of_left_neighbour

    def plain(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        blocks = []
        for d in range(8):
            own, left = slice(2 * d, 2 * d + 2), slice(2 * ((d - 1) % 8), 2 * ((d - 1) % 8) + 2)
            keys, values = (jnp.concatenate([a[:, left], a[:, own]], axis=1) for a in (k, v))
            blocks.append(attend(q[:, own], keys, values))
        return jnp.concatenate(blocks, axis=1)

    split = P(None, "model")
    whole = {name: P() for name in "qkv"}
    sharded = jax.shard_map(
        attention, mesh=mesh(8, names=("model",)), in_specs=(whole, split), out_specs=split, check_vma=False
    )
    w = {name: numbers(k, 8, 2, 4, dtype=dtype, scale=0.5) for k, name in enumerate("qkv")}
    return jax.jit(sharded), plain, (w, numbers(3, 2, 16, 8, dtype=dtype))
