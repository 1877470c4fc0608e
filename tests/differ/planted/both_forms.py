"""Programs of the other modules with the other unsharded form: on one device, or as a function written separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from tests.differ.planted import (
    all_to_all,
    doubled_psum,
    fsdp,
    missing_psum,
    missing_psum_later,
    psum_for_pmean,
    softmax,
    stale_halo,
    uneven_mean,
    wrong_axis,
)
from tests.differ.planted.layers import attend, cross_entropy, layer_norm, sgd
from tests.differ.planted.program import PROGRAMS, on_one_device, planted


def also_on_one(builder: Callable[[Any, bool], Any]) -> None:
    """Register the builder's sharded function with itself on one device as its unsharded form."""

    def build(dtype: Any, bug: bool) -> Any:
        sharded, _, args = builder(dtype, bug)
        token = on_one_device.set(True)
        try:
            return sharded, builder(dtype, bug)[0], args
        finally:
            on_one_device.reset(token)

    name = builder.__name__
    build.__name__, build.__module__ = f"{name}_on_one", __name__
    planted(PROGRAMS[name].kind, twin="one", of=name)(build)


def also_plain(builder: Callable[[Any, bool], Any], plain: Callable[..., Any], form: str = "plain") -> None:
    def build(dtype: Any, bug: bool) -> Any:
        sharded, _, args = builder(dtype, bug)
        return sharded, plain, args

    name = builder.__name__
    build.__name__, build.__module__ = f"{name}_{form}", __name__
    planted(PROGRAMS[name].kind, twin="plain", of=name)(build)


def mlp(w: Any, x: Any) -> Any:
    h = jax.nn.gelu(x @ w["w1"] + w["b1"])
    return layer_norm(x + (h @ w["w2"] + w["b2"]), w["scale"], w["shift"])


def residual_mlp(w: Any, x: Any) -> Any:
    return x + jax.nn.gelu(x @ w["up"] + w["b1"]) @ w["down"] + w["b2"]


def normed_mlp(w: Any, x: Any) -> Any:
    return layer_norm(x + jax.nn.gelu(x @ w["up"]) @ w["down"] + w["bias"], 1, 0)


def regression(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.square(x @ w - y)))(w)
    return sgd(w, gradient, 0.5), {"loss": value, "gradient norm": jnp.sqrt(jnp.sum(jnp.square(gradient)))}


def masked_step(w: Any, x: Any, labels: Any, mask: Any) -> Any:
    def loss(w: Any) -> Any:
        losses = cross_entropy(jnp.tanh(x @ w["a"]) @ w["b"], labels)
        return jnp.sum(losses * mask) / jnp.sum(mask)

    value, gradients = jax.value_and_grad(loss)(w)
    return sgd(w, gradients, 1.0), value


def cross_attention(w: Any, q: Any, memory: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, memory @ w["k"]) / 2
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, axis=-1), memory @ w["v"])


def self_attention(w: Any, x: Any) -> Any:
    q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in ("q", "k", "v"))
    y = attend(q, k, v)
    return x + y.reshape(*y.shape[:2], -1) @ w["o"]


def scanned_training(w: Any, batches: Any) -> Any:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.square(jnp.tanh(x @ w["a"]) @ w["b"] - y))

    def body(w: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, *batch)
        return sgd(w, gradients, 0.5), value

    return lax.scan(body, w, batches)


def scanned_steps(w: Any, xs: Any, ys: Any) -> Any:
    def body(w: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(fsdp.loss)(w, *batch)
        return sgd(w, gradients, 0.5), value

    return lax.scan(body, w, (xs, ys))


def scanned_heat(u: Any) -> Any:
    def body(_: Any, u: Any) -> Any:
        return u + jnp.asarray(0.25, u.dtype) * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))

    return lax.fori_loop(0, 4, body, u)


def scanned_jacobi(u: Any, f: Any) -> Any:
    def body(u: Any, _: Any) -> Any:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return jnp.asarray(0.25, u.dtype) * (around - f), None

    return lax.scan(body, u, None, length=3)[0]


def scanned_power(a: Any, v: Any) -> Any:
    def body(v: Any, _: Any) -> Any:
        y = a @ v
        v = y / jnp.sqrt(jnp.sum(jnp.square(y)))
        return v, v[0]

    return lax.scan(body, v, None, length=3)


ON_ONE: Final = (
    missing_psum.second_projection,
    missing_psum.vocabulary_parallel_embedding,
    doubled_psum.one_axis_too_many,
    uneven_mean.masked_loss,
    uneven_mean.weighted_pooling,
    psum_for_pmean.batch_norm_mean,
    wrong_axis.values_gathered_over_data,
    softmax.own_maximum,
    softmax.vocabulary_parallel_loss,
)
PLAIN: Final = (
    (missing_psum.mlp_row_parallel, mlp),
    (doubled_psum.helper_and_caller, normed_mlp),
    (wrong_axis.sum_over_data, residual_mlp),
    (psum_for_pmean.reported_loss, regression),
    (uneven_mean.masked_training, masked_step),
    (softmax.own_sum, cross_attention),
    (all_to_all.heads_for_sequence, self_attention),
)
SCANNED: Final = (
    (missing_psum_later.every_second_step, scanned_training),
    (missing_psum_later.power_iteration, scanned_power),
    (fsdp.gathered_before_update, scanned_steps),
    (stale_halo.exchanged_once, scanned_heat),
    (stale_halo.carried_halo, scanned_heat),
    (stale_halo.jacobi_on_a_grid, scanned_jacobi),
)
for builder in ON_ONE:
    also_on_one(builder)
for builder, plain in PLAIN:
    also_plain(builder, plain)
for builder, plain in SCANNED:
    also_plain(builder, plain, "scanned")
