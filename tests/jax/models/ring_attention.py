"""Attention over sequences that are cut: blocks of keys and values go round a ring, or the partitioner gathers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.models.program import P, Program

LENGTH, HEADS, WIDTH = 32, 2, 8


def attention(q: Any, k: Any, v: Any) -> Any:
    """Arrays [length, heads, width]; each row sees those before it."""
    scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(WIDTH)
    scores = jnp.where(jnp.arange(LENGTH)[:, None] >= jnp.arange(LENGTH), scores, -jnp.inf)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v)


def ring_attention(q: Any, k: Any, v: Any) -> Any:
    """The same of this device's rows. Sums are kept with their largest exponent."""
    here, count = jax.lax.axis_index("ring"), jax.lax.axis_size("ring")
    rows = q.shape[0]
    at = here * rows + jnp.arange(rows)

    def turn(state: Any, number: Any) -> Any:
        k, v, total, norm, top = state
        behind = (here - number) % count * rows + jnp.arange(rows)
        scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(WIDTH)
        scores = jnp.where(at[:, None] >= behind, scores, -1e30)
        above = jax.lax.stop_gradient(jnp.maximum(top, scores.max(-1)))
        part, keep = jnp.exp(scores - above[..., None]), jnp.exp(top - above)
        total = total * keep.T[..., None] + jnp.einsum("hqk,khd->qhd", part, v)
        k, v = jax.lax.ppermute((k, v), "ring", [(d, (d + 1) % count) for d in range(count)])
        return (k, v, total, norm * keep + part.sum(-1), above), None

    zeros = jnp.zeros_like(q).sum(-1).T  # varies over the ring, as the sums do
    state, _ = jax.lax.scan(turn, (k, v, jnp.zeros_like(q), zeros, zeros - 1e30), jnp.arange(count))
    return state[2] / state[3].T[..., None]


def program(devices: int, is_manual: bool) -> Program:
    """Descent of the projections, which all devices have."""
    attend = ring_attention if is_manual else attention

    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            out = attend(*jnp.einsum("lw,cwhd->clhd", x, weights))
            value = jnp.square(out - y).mean()
            return (jax.lax.pmean(value, "ring") if is_manual else value), out

        (value, out), slope = jax.value_and_grad(loss, has_aux=True)(weights)
        return weights - 0.5 * slope, {"loss": value, "out": out}

    draw = np.random.default_rng(3)
    weights = draw.standard_normal((3, 16, HEADS, WIDTH)).astype(np.float32) / 4
    batches = [
        tuple(draw.standard_normal(shape).astype(np.float32) for shape in ((LENGTH, 16), (LENGTH, HEADS, WIDTH)))
        for _ in range(3)
    ]
    rows, outs = P("ring"), {"loss": P(), "out": P("ring")}
    return Program({"ring": devices}, lambda mesh: step, weights, batches, P(), (rows, rows), outs, is_manual)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "ring_attention-shardings": lambda: program(4, False),
    "ring_attention-shard_map": lambda: program(8, True),
}
