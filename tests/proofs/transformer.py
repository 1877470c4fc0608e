"""A training step of a decoder with Adam, cut over data and tensor parallel axes."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tests.jax.programs import mesh

P = PartitionSpec
WIDTH, HEADS, HEAD, HIDDEN, WORDS, LENGTH, BATCH = 64, 8, 8, 256, 128, 32, 8
SHAPES: Final = {
    "g1": (WIDTH,),
    "q": (WIDTH, HEADS, HEAD),
    "k": (WIDTH, HEADS, HEAD),
    "v": (WIDTH, HEADS, HEAD),
    "o": (HEADS, HEAD, WIDTH),
    "g2": (WIDTH,),
    "a": (WIDTH, HIDDEN),
    "b": (HIDDEN, WIDTH),
}
SPECS: Final = {"q": P(None, "y"), "k": P(None, "y"), "v": P(None, "y"), "o": P("y"), "a": P(None, "y"), "b": P("y")}


def normalised(x: Any, g: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def model(p: Any, ids: Any) -> Any:
    x = p["in"][ids]
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    for w in p["layers"]:
        h = normalised(x, w["g1"])
        q, k, v = (jnp.einsum("bsd,dhk->bshk", h, w[name]) for name in "qkv")
        scores = jnp.where(mask, jnp.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(HEAD), -1e30)
        out = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(scores, -1), v)
        x = x + jnp.einsum("bqhk,hkd->bqd", out, w["o"])
        x = x + jax.nn.gelu(normalised(x, w["g2"]) @ w["a"]) @ w["b"]
    return x @ p["out"]


def loss(p: Any, ids: Any, y: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(model(p, ids)), y[..., None], -1))


def step(p: Any, m: Any, v: Any, ids: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(p, ids, y)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradient)
    return jax.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v, value


def lowered_step(layers: int) -> jax.stages.Lowered:
    """For 2 x 4 partitions."""
    on = mesh(2, 4)

    def given(shape: tuple[int, ...], dtype: Any, spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(on, spec))

    layer = {name: given(shape, np.float32, SPECS.get(name, P())) for name, shape in SHAPES.items()}
    p = {
        "in": given((WORDS, WIDTH), np.float32, P()),
        "layers": [layer] * layers,
        "out": given((WIDTH, WORDS), np.float32, P(None, "y")),
    }
    ids = given((BATCH, LENGTH), np.int32, P("x"))
    return jax.jit(step, keep_unused=True).trace(p, p, p, ids, ids).lower(lowering_platforms=("cpu",))
