"""Training steps of a ResNet with batch norm over all devices: by an axis of `shard_map`, and by shardings alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from tests.jax.models.program import P, Program, filled, zeros_of

CLASSES, BATCH, SIZE = 5, 16, 8
OPTIMIZER = optax.sgd(0.05, momentum=0.9, nesterov=True)


class Block(nn.Module):
    channels: int
    stride: int
    axis: str | None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        def norm() -> nn.BatchNorm:
            return nn.BatchNorm(use_running_average=False, momentum=0.9, axis_name=self.axis)

        strides = (self.stride, self.stride)
        y = nn.relu(norm()(nn.Conv(self.channels, (3, 3), strides, use_bias=False)(x)))
        y = norm()(nn.Conv(self.channels, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm()(nn.Conv(self.channels, (1, 1), strides, use_bias=False)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    axis: str | None = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(4, (3, 3), use_bias=False)(x)
        x = nn.max_pool(
            nn.relu(nn.BatchNorm(use_running_average=False, axis_name=self.axis)(x)), (2, 2), (1, 1), "SAME"
        )
        x = Block(4, 1, self.axis)(x)
        x = Block(8, 2, self.axis)(x)
        return nn.Dense(CLASSES)(x.mean((1, 2)))


def step(state: Any, images: Any, labels: Any, axis: str | None) -> Any:
    params, statistics, moments = state

    def loss(params: Any) -> Any:
        logits, changed = ResNet(axis).apply(
            {"params": params, "batch_stats": statistics}, images, mutable=["batch_stats"]
        )
        value = optax.softmax_cross_entropy(logits, optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1)).mean()
        right = (logits.argmax(-1) == labels).sum()
        if axis is not None:
            value, right = jax.lax.pmean(value, axis), jax.lax.psum(right, axis)
        return value, (changed["batch_stats"], right)

    (value, (statistics, right)), slope = jax.value_and_grad(loss, has_aux=True)(params)
    changes, moments = OPTIMIZER.update(slope, moments, params)
    return (optax.apply_updates(params, changes), statistics, moments), {"loss": value, "right": right}


def program(axis: str | None) -> Program:
    variables = filled(jax.eval_shape(ResNet().init, jax.random.key(0), jnp.zeros((2, SIZE, SIZE, 3))))
    moments = zeros_of(OPTIMIZER, variables["params"])
    draw = np.random.default_rng(2)
    batches = [
        (draw.random((BATCH, SIZE, SIZE, 3), np.float32), draw.integers(0, CLASSES, BATCH, np.int32)) for _ in range(3)
    ]
    state = variables["params"], variables["batch_stats"], moments

    def made(mesh: Any) -> Callable[..., Any]:
        return lambda state, images, labels: step(state, images, labels, axis)

    return Program({"data": 4}, made, state, batches, P(), (P("data"), P("data")), P(), axis is not None)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "resnet-shardings": lambda: program(None),
    "resnet-shard_map": lambda: program("data"),
}
