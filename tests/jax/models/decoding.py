"""Tokens one after the other, drawn from a model's chances, with a cache of keys and values that calls hand on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from tests.jax.models.program import P, Program, filled, specs_by_name

WORDS, WIDTH, HEADS, BATCH, LENGTH, TOKENS = 16, 16, 4, 8, 24, 4
HEADWISE = {
    "out/kernel": P("model"),
    "query/kernel": P(None, "model"),
    "key/kernel": P(None, "model"),
    "value/kernel": P(None, "model"),
    "up_0/kernel": P(None, "model"),
    "down_0/kernel": P("model"),
}


class Decoder(nn.Module):
    """One token at a time: flax's attention updates a slice of its cache."""

    @nn.compact
    def __call__(self, token: Any) -> Any:
        words = nn.Embed(WORDS, WIDTH, name="words")
        x = words(token)
        for k in range(2):
            attention = nn.MultiHeadDotProductAttention(num_heads=HEADS, decode=True, name=f"attention_{k}")
            x = x + attention(nn.RMSNorm()(x))
            x = x + nn.Dense(WIDTH, name=f"down_{k}")(nn.gelu(nn.Dense(2 * WIDTH, name=f"up_{k}")(nn.RMSNorm()(x))))
        return words.attend(nn.RMSNorm()(x))


def step(state: Any, params: Any, axis: str | None) -> Any:
    """Some tokens more."""

    def one(state: Any, _: Any) -> Any:
        logits, changed = Decoder().apply(
            {"params": params, "cache": state["cache"]}, state["token"], mutable=["cache"]
        )
        key, now = jax.random.split(state["key"])
        if axis is not None:
            now = jax.random.fold_in(now, jax.lax.axis_index(axis))
        token = jax.random.categorical(now, logits[:, -1] * 3).astype(jnp.int32)[:, None]
        return {"cache": changed["cache"], "token": token, "key": key}, (token[:, 0], logits[:, -1].max(-1))

    state, (tokens, tops) = jax.lax.scan(one, state, length=TOKENS)
    return state, {"tokens": tokens, "tops": tops}


def program(axes: dict[str, int], axis: str | None) -> Program:
    shapes = jax.eval_shape(Decoder().init, jax.random.key(0), jnp.zeros((BATCH, LENGTH), jnp.int32))
    params, cache = filled(shapes["params"]), jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes["cache"])
    token = (np.arange(BATCH, dtype=np.int32) * 5 % WORDS)[:, None]
    state = {"cache": cache, "token": token, "key": np.asarray([0, 3], np.uint32)}
    kept = {"cached": P("data") if axis else P("data", None, "model")}
    specs = {"cache": specs_by_name(cache, kept), "token": P("data"), "key": P()}

    def make(mesh: Any) -> Callable[..., Any]:
        return lambda state, params: step(state, params, axis)

    outs = {"tokens": P(None, "data"), "tops": P(None, "data")}
    cut = P() if axis else specs_by_name(params, HEADWISE)
    return Program(axes, make, state, [(params,)] * 4, specs, (cut,), outs, axis is not None)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "decoding-shardings": lambda: program({"data": 2, "model": 4}, None),
    "decoding-shard_map": lambda: program({"data": 4}, "data"),
}
