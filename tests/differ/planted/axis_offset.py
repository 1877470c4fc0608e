"""A wrong offset by axis_index: where a device's part begins in the whole."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("wrong offset by axis_index", twin="plain")
def rotary_positions(dtype: Any, bug: bool) -> Any:
    """Positions of a split sequence begin at the device's number on "data" instead of "model"."""

    def rotated(x: Any, start: Any) -> Any:
        positions = start + jnp.arange(x.shape[1])  # planted-use: rotary_positions
        angles = positions[:, None] * jnp.array([1.0, 0.3])
        cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)  # planted-use: rotary_positions
        even, odd = x[..., 0::2], x[..., 1::2]
        return jnp.concatenate(
            [even * cos - odd * sin, even * sin + odd * cos], axis=-1
        )  # planted-use: rotary_positions

    def offset(x: Any) -> Any:
        return lax.axis_index("data" if bug else "model") * x.shape[1]  # planted: rotary_positions

    def model(w: Any, x: Any) -> Any:
        return rotated(x @ w, offset(x))

    sharded = jax.shard_map(
        model, mesh=mesh(4, 2), in_specs=(P(), P("data", "model")), out_specs=P("data", "model"), check_vma=False
    )
    args = numbers(1, 8, 4, dtype=dtype, scale=0.5), numbers(2, 4, 8, 8, dtype=dtype)
    return jax.jit(sharded), lambda w, x: rotated(x @ w, 0), args


@planted("wrong offset by axis_index", twin="plain")
def causal_mask_of_queries(dtype: Any, bug: bool) -> Any:
    """Queries are split, keys gathered; the mask counts the queries of each device from 0."""

    def mask_of(rows: int, columns: int, start: Any) -> Any:
        return start + jnp.arange(rows)[:, None] >= jnp.arange(columns)  # planted: causal_mask_of_queries

    def attention(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        k, v = (lax.all_gather(a, "model", axis=1, tiled=True) for a in (k, v))
        start = 0 if bug else lax.axis_index("model") * x.shape[1]
        mask = mask_of(x.shape[1], k.shape[1], start)  # planted: causal_mask_of_queries
        return attend(q, k, v, mask)  # planted-use: causal_mask_of_queries

    def plain(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
        return attend(q, k, v, jnp.tril(jnp.ones((16, 16), bool)))

    split = P(None, "model")
    sharded = jax.shard_map(
        attention, mesh=mesh(8, names=("model",)), in_specs=({name: P() for name in "qkv"}, split), out_specs=split,
        check_vma=False,
    )  # fmt: skip
    w = {name: numbers(k, 8, 2, 4, dtype=dtype, scale=0.5) for k, name in enumerate("qkv")}
    return jax.jit(sharded), plain, (w, numbers(3, 2, 16, 8, dtype=dtype))


@planted("wrong offset by axis_index", twin="plain")
def vocabulary_starts_late(dtype: Any, bug: bool) -> Any:
    """The first row of a device's part of the table is taken for the last one in front of it."""

    def start(rows: int) -> Any:
        first = lax.axis_index("model") * rows
        return first + 1 if bug else first  # planted: vocabulary_starts_late

    def lookup(table: Any, tokens: Any) -> Any:
        rows = table.shape[0]
        local = tokens - start(rows)  # planted-use: vocabulary_starts_late
        inside = (local >= 0) & (local < rows)
        picked = table[jnp.clip(local, 0, rows - 1)]  # planted-use: vocabulary_starts_late
        return lax.psum(jnp.where(inside[..., None], picked, 0), "model")  # planted-use: vocabulary_starts_late

    def model(w: Any, tokens: Any) -> Any:
        return jnp.tanh(lookup(w["table"], tokens) @ w["out"])

    sharded = jax.shard_map(
        model, mesh=mesh(2, 4), in_specs=({"table": P("model"), "out": P()}, P("data")), out_specs=P("data"),
        check_vma=False,
    )  # fmt: skip
    w = {"table": numbers(1, 32, 8, dtype=dtype), "out": numbers(2, 8, 8, dtype=dtype, scale=0.5)}
    return jax.jit(sharded), lambda w, t: jnp.tanh(w["table"][t] @ w["out"]), (w, integers(3, 32, 4, 6))


@planted("wrong offset by axis_index", twin="plain")
def slice_by_device_number(dtype: Any, bug: bool) -> Any:
    """A device cuts its rows out of a whole table by its number, not by its number times the rows."""

    def own(table: Any, rows: int) -> Any:
        start = lax.axis_index("data") * (1 if bug else rows)
        return lax.dynamic_slice_in_dim(table, start, rows)  # planted: slice_by_device_number

    def model(table: Any, x: Any) -> Any:
        return jax.nn.gelu(x + own(table, x.shape[0]))  # planted-use: slice_by_device_number

    sharded = jax.shard_map(
        model, mesh=mesh(8, names=("data",)), in_specs=(P(), P("data")), out_specs=P("data"), check_vma=False
    )
    args = numbers(1, 32, 4, dtype=dtype), numbers(2, 32, 4, dtype=dtype)
    return jax.jit(sharded), lambda table, x: jax.nn.gelu(x + table), args
