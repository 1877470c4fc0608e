"""all_to_all on the wrong dimension, where the sizes allow it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend
from tests.differ.planted.program import mesh, numbers, planted


@planted("all_to_all on the wrong dimension", twin="one")
def heads_for_sequence(dtype: Any, bug: bool) -> Any:
    """Ulysses: in front of the attention heads are split and the sequence joined; behind it the other way, but the
    device's heads stay and features are joined."""

    def there(a: Any) -> Any:
        return lax.all_to_all(a, "model", split_axis=2, concat_axis=1, tiled=True)

    def back(a: Any) -> Any:
        joined = 3 if bug else 2
        return lax.all_to_all(a, "model", split_axis=1, concat_axis=joined, tiled=True)  # planted: heads_for_sequence

    def attention(w: Any, x: Any) -> Any:
        q, k, v = (there(jnp.einsum("bsm,mhd->bshd", x, w[name])) for name in ("q", "k", "v"))
        y = back(attend(q, k, v))
        y = y.reshape(*y.shape[:2], 16)  # planted-use: heads_for_sequence
        return x + y @ w["o"]  # planted-use: heads_for_sequence

    def on(devices: Any) -> Any:
        whole = {name: P() for name in "qkvo"}
        split = P("data", "model")
        return jax.jit(
            jax.shard_map(attention, mesh=devices, in_specs=(whole, split), out_specs=split, check_vma=False)
        )

    w = {name: numbers(k, 8, 8, 2, dtype=dtype, scale=0.4) for k, name in enumerate("qkv")}
    w["o"] = numbers(3, 16, 8, dtype=dtype, scale=0.4)
    return on(mesh(2, 4)), on(mesh(1, 1)), (w, numbers(4, 2, 8, 8, dtype=dtype))


@planted("all_to_all on the wrong dimension", twin="plain")
def transposed_grid(dtype: Any, bug: bool) -> Any:
    """A product along each of two dimensions: the second needs whole columns, for which rows and columns change."""

    def both(x: Any, f: Any) -> Any:
        h = x @ f
        h = columns(h)
        return jnp.tanh(jnp.einsum("ij,ik->jk", h, f))  # planted-use: transposed_grid

    def columns(h: Any) -> Any:
        blocks = h.reshape(h.shape[0], lax.axis_size("data"), -1)
        moved = lax.all_to_all(blocks, "data", split_axis=1, concat_axis=1 if bug else 0)  # planted: transposed_grid
        return moved.reshape(16, -1)  # planted-use: transposed_grid

    def plain(x: Any, f: Any) -> Any:
        return jnp.tanh(jnp.einsum("ij,ik->jk", x @ f, f))

    sharded = jax.shard_map(
        both, mesh=mesh(8, names=("data",)), in_specs=(P("data"), P()), out_specs=P("data"), check_vma=False
    )
    return jax.jit(sharded), plain, (numbers(1, 16, 16, dtype=dtype), numbers(2, 16, 16, dtype=dtype, scale=0.2))


@planted("all_to_all on the wrong dimension", twin="one")
def experts_and_slots(dtype: Any, bug: bool) -> Any:
    """A mixture of experts with as many slots as experts: what goes to the experts is split by slots."""

    def route(x: Any) -> Any:
        slots = x.reshape(8, 8, x.shape[-1])
        split = 1 if bug else 0
        return lax.all_to_all(
            slots, "model", split_axis=split, concat_axis=1 - split, tiled=True
        )  # planted: experts_and_slots

    def model(w: Any, x: Any) -> Any:
        n = lax.axis_size("model")
        tokens = route(x)
        tokens = tokens.reshape(8 // n, 8 * n, x.shape[-1])  # planted-use: experts_and_slots
        h = jax.vmap(lambda w, t: jax.nn.relu(t @ w))(w, tokens)  # planted-use: experts_and_slots
        y = lax.all_to_all(h, "model", split_axis=1, concat_axis=0, tiled=True)
        return y.reshape(x.shape)

    def on(devices: Any) -> Any:
        return jax.jit(
            jax.shard_map(model, mesh=devices, in_specs=(P("model"), P("data")), out_specs=P("data"), check_vma=False)
        )

    def plain(w: Any, x: Any) -> Any:
        blocks = x.reshape(2, 8, 8, 4)
        return jax.nn.relu(jnp.einsum("besm,emn->besn", blocks, w)).reshape(x.shape)

    w, x = numbers(1, 8, 4, 4, dtype=dtype, scale=0.5), numbers(2, 128, 4, dtype=dtype)
    return on(mesh(2, 4)), plain, (w, x)
