"""Training steps of a mixture of experts: each token goes to two experts, on whatever devices they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import NamedSharding

from tests.jax.models.program import P, Program, filled, specs_by_name, zeros_of

EXPERTS, TOKENS, WIDTH, HIDDEN, PLACES = 8, 64, 8, 16, 4
OPTIMIZER = optax.adam(1e-2)


class Experts(nn.Module):
    """count: of the experts whose weights this device holds.  exchange: what brings tokens [experts, groups, places,
    width] to their experts, and back."""

    count: int
    exchange: Callable[[Any, bool], Any]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """x: [groups, tokens, width]. The result, and how unevenly experts are chosen."""
        chances = jax.nn.softmax(nn.Dense(EXPERTS, use_bias=False, name="router")(x))
        weight, chosen = jax.lax.top_k(chances, 2)
        is_chosen = jax.nn.one_hot(chosen, EXPERTS, dtype=jnp.int32)  # [groups, tokens, 2, experts]
        groups, tokens = x.shape[:2]
        place = jnp.cumsum(is_chosen.reshape(groups, tokens * 2, EXPERTS), 1).reshape(is_chosen.shape) - 1
        there = jax.nn.one_hot(jnp.where(is_chosen > 0, place, -1), PLACES)  # tokens beyond the places are dropped
        sent = jnp.einsum("gtkep,gtw->egpw", there, x)
        y = self.exchange(sent, True)
        up = self.param("up", nn.initializers.normal(), (self.count, WIDTH, HIDDEN))
        down = self.param("down", nn.initializers.normal(), (self.count, HIDDEN, WIDTH))
        y = jnp.einsum("egph,ehw->egpw", nn.silu(jnp.einsum("egpw,ewh->egph", y, up)), down)
        y = self.exchange(y, False)
        uneven = (is_chosen[..., 0, :].mean((0, 1), dtype=x.dtype) * chances.mean((0, 1))).sum() * EXPERTS
        return jnp.einsum("gtkep,gtk,egpw->gtw", there, weight, y), (uneven, is_chosen.sum((0, 1, 2)))


def step(state: Any, x: Any, y: Any, model: Experts, axis: str | None) -> Any:
    params, moments = state

    def loss(params: Any) -> Any:
        found, (uneven, loads) = model.apply({"params": params}, x)
        value = jnp.square(found - y).mean() + 0.01 * uneven
        return (value, loads) if axis is None else (jax.lax.pmean(value, axis), jax.lax.psum(loads, axis))

    (value, loads), slope = jax.value_and_grad(loss, has_aux=True)(params)
    changes, moments = OPTIMIZER.update(slope, moments, params)
    return (optax.apply_updates(params, changes), moments), {"loss": value, "loads": loads}


def program(devices: int, is_manual: bool) -> Program:
    def manual(mesh: Any) -> Callable[..., Any]:
        def exchange(tokens: Any, is_sent: bool) -> Any:
            split, concat = (0, 1) if is_sent else (1, 0)
            return jax.lax.all_to_all(tokens, "expert", split, concat, tiled=True)

        return lambda state, x, y: step(state, x, y, Experts(EXPERTS // devices, exchange), "expert")

    def automatic(mesh: Any) -> Callable[..., Any]:
        def exchange(tokens: Any, is_sent: bool) -> Any:
            spec = P("expert") if is_sent else P(None, "expert")
            return jax.lax.with_sharding_constraint(tokens, NamedSharding(mesh, spec))

        return lambda state, x, y: step(state, x, y, Experts(EXPERTS, exchange), None)

    whole, groups = Experts(EXPERTS, lambda tokens, _: tokens), devices
    params = filled(jax.eval_shape(whole.init, jax.random.key(0), jnp.zeros((groups, TOKENS // groups, WIDTH))))[
        "params"
    ]
    params = {**params, "up": params["up"] * 5, "down": params["down"] * 5}
    moments = zeros_of(OPTIMIZER, params)
    draw = np.random.default_rng(2)
    batches = [
        tuple(draw.standard_normal((groups, TOKENS // groups, WIDTH)).astype(np.float32) for _ in range(2))
        for _ in range(3)
    ]
    specs = specs_by_name(params, {"up": P("expert"), "down": P("expert")})
    cut = optax.tree_map_params(OPTIMIZER, lambda _, spec: spec, moments, specs, transform_non_params=lambda _: P())
    make = manual if is_manual else automatic
    rows = P("expert")
    return Program({"expert": devices}, make, (params, moments), batches, (specs, cut), (rows, rows), P(), is_manual)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "experts-shardings": lambda: program(8, False),
    "experts-shard_map": lambda: program(4, True),
}
