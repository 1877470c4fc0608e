"""Layers that many of the programs share: they have no bug, but a caller may use them wrongly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-3) * scale + shift


def dense(x: Any, w: Any, b: Any) -> Any:
    return x @ w + b


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Of each token."""
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]  # planted-use: labels_in_another_order
    return jax.nn.logsumexp(logits, axis=-1) - picked


def sgd(params: Any, gradients: Any, rate: float) -> Any:
    return jax.tree.map(lambda p, g: p - jnp.asarray(rate, p.dtype) * g, params, gradients)


def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """q, k, v: [batch, sequence, heads, width]."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(jnp.asarray(q.shape[-1], q.dtype))
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.asarray(-1e4, scores.dtype))  # planted-use: causal_mask_of_queries
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)  # planted-use: values_gathered_over_data


def dropped(x: Any, mask: Any, kept: float) -> Any:
    return jnp.where(mask, x / jnp.asarray(kept, x.dtype), jnp.zeros_like(x))
