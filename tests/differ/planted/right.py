"""Right programs with automatic shardings: of arguments, and by constraints inside. The partitioner cuts them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import attend, cross_entropy, dense, dropped, layer_norm, sgd
from tests.differ.planted.program import integers, key, mesh, numbers, planted


def placed(devices: Any, specs: Any) -> Any:
    return jax.tree.map(lambda spec: NamedSharding(devices, spec), specs, is_leaf=lambda s: isinstance(s, P))


@planted("right", twin="plain", has_bug=False)
def tensor_parallel_mlp(dtype: Any, bug: bool) -> Any:
    """Constraints say that hidden features are split."""
    grid = mesh(2, 4)

    def model(w: Any, x: Any, on: Any = None) -> Any:
        h = jax.nn.gelu(dense(x, w["up"], w["b1"]))
        if on is not None:
            h = constrain(h, NamedSharding(on, P("data", "model")))
        return layer_norm(x + dense(h, w["down"], w["b2"]), 1, 0)

    specs = {"up": P(None, "model"), "b1": P("model"), "down": P("model"), "b2": P()}
    sharded = jax.jit(
        lambda w, x: model(w, x, grid), in_shardings=placed(grid, (specs, P("data"))),
        out_shardings=placed(grid, P("data")),
    )  # fmt: skip
    w = {
        "up": numbers(1, 8, 32, dtype=dtype, scale=0.4), "b1": numbers(2, 32, dtype=dtype) * 0,
        "down": numbers(3, 32, 8, dtype=dtype, scale=0.4), "b2": numbers(4, 8, dtype=dtype) * 0,
    }  # fmt: skip
    return sharded, model, (w, numbers(5, 8, 8, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def fully_sharded_step(dtype: Any, bug: bool) -> Any:
    """FSDP: parameters, momentum and batch are split over one axis; updates lie as the parameters."""
    line = mesh(8, names=("data",))

    def step(w: Any, momentum: Any, x: Any, labels: Any) -> Any:
        def loss(w: Any) -> Any:
            h = jax.nn.gelu(x @ w["a"])
            return jnp.mean(cross_entropy(h @ w["b"], labels))

        value, gradients = jax.value_and_grad(loss)(w)
        momentum = jax.tree.map(lambda m, g: m * jnp.asarray(0.9, m.dtype) + g, momentum, gradients)
        return sgd(w, momentum, 0.5), momentum, value

    split = {"a": P("data"), "b": P("data")}
    sharded = jax.jit(
        step, in_shardings=placed(line, (split, split, P("data"), P("data"))),
        out_shardings=placed(line, (split, split, P())),
    )  # fmt: skip
    w = {"a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, 8, dtype=dtype, scale=0.4)}
    zeros = jax.tree.map(lambda p: p * 0, w)
    return sharded, step, (w, zeros, numbers(3, 16, 8, dtype=dtype), integers(4, 8, 16))


@planted("right", twin="plain", has_bug=False)
def data_parallel_step(dtype: Any, bug: bool) -> Any:
    """Parameters are the same everywhere, the batch is split; masked tokens, so that its parts are uneven."""
    line = mesh(8, names=("data",))

    def step(w: Any, x: Any, labels: Any, mask: Any) -> Any:
        def loss(w: Any) -> Any:
            losses = cross_entropy(dense(jnp.tanh(dense(x, w["a"], w["c"])), w["b"], w["d"]), labels)
            return jnp.sum(losses * mask) / jnp.sum(mask)

        value, gradients = jax.value_and_grad(loss)(w)
        return sgd(w, gradients, 0.5), value

    w = {
        "a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, 8, dtype=dtype, scale=0.4),
        "c": numbers(3, 16, dtype=dtype) * 0, "d": numbers(4, 8, dtype=dtype) * 0,
    }  # fmt: skip
    whole = {name: P() for name in w}
    sharded = jax.jit(
        step, in_shardings=placed(line, (whole, P("data"), P("data"), P("data"))),
        out_shardings=placed(line, (whole, P())),
    )  # fmt: skip
    mask = (integers(5, 3, 16, 4) > 0).astype(dtype)
    return sharded, step, (w, numbers(6, 16, 4, 8, dtype=dtype), integers(7, 8, 16, 4), mask)


@planted("right", twin="plain", has_bug=False)
def attention_by_heads(dtype: Any, bug: bool) -> Any:
    """Causal attention, its heads split, with a constraint on the scores' side and a residual."""
    grid = mesh(2, 4)

    def model(w: Any, x: Any, on: Any = None) -> Any:
        n = layer_norm(x, 1, 0)
        q, k, v = (jnp.einsum("bsm,mhd->bshd", n, w[name]) for name in ("q", "k", "v"))
        if on is not None:
            q, k, v = (constrain(a, NamedSharding(on, P("data", None, "model"))) for a in (q, k, v))
        y = attend(q, k, v, jnp.tril(jnp.ones((x.shape[1],) * 2, bool)))
        return x + jnp.einsum("bshd,hdm->bsm", y, w["o"])

    specs = {"q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "o": P("model")}
    sharded = jax.jit(lambda w, x: model(w, x, grid), in_shardings=placed(grid, (specs, P("data"))))
    w = {name: numbers(k, 8, 4, 4, dtype=dtype, scale=0.4) for k, name in enumerate("qkv")}
    w["o"] = numbers(3, 4, 4, 8, dtype=dtype, scale=0.4)
    return sharded, model, (w, numbers(4, 4, 8, 8, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def convolution_over_rows(dtype: Any, bug: bool) -> Any:
    """Images split along their rows: the partitioner exchanges halos."""
    line = mesh(4, names=("data",))

    def model(w: Any, x: Any) -> Any:
        for kernel in w:
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        return x, jnp.mean(x, axis=(1, 2))

    sharded = jax.jit(model, in_shardings=placed(line, ([P(), P()], P(None, "data"))))
    w = [numbers(1, 3, 3, 2, 4, dtype=dtype, scale=0.3), numbers(2, 3, 3, 4, 2, dtype=dtype, scale=0.3)]
    return sharded, model, (w, numbers(3, 2, 8, 8, 2, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def layers_in_a_scan(dtype: Any, bug: bool) -> Any:
    """Stacked layers in a scan, features split and a constraint inside of the body; a gradient of it."""
    grid = mesh(2, 4)

    def loss(w: Any, x: Any, on: Any) -> Any:
        def body(x: Any, w: Any) -> Any:
            h = jnp.tanh(x @ w["up"])
            if on is not None:
                h = constrain(h, NamedSharding(on, P("data", "model")))
            return layer_norm(x + h @ w["down"], 1, 0), None

        return jnp.mean(jnp.square(lax.scan(body, x, w)[0] - 1))

    def step(w: Any, x: Any, on: Any = None) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x, on)
        return sgd(w, gradients, 0.5), value

    split = {"up": P(None, None, "model"), "down": P(None, "model")}
    sharded = jax.jit(
        lambda w, x: step(w, x, grid), in_shardings=placed(grid, (split, P("data"))),
        out_shardings=placed(grid, (split, P())),
    )  # fmt: skip
    w = {"up": numbers(1, 3, 8, 16, dtype=dtype, scale=0.4), "down": numbers(2, 3, 16, 8, dtype=dtype, scale=0.4)}
    return sharded, step, (w, numbers(3, 8, 8, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def dropout_of_a_split_batch(dtype: Any, bug: bool) -> Any:
    """Random numbers of the whole batch, of which each device computes its own."""
    line = mesh(8, names=("data",))

    def model(w: Any, k: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ w)
        return dropped(h, jax.random.bernoulli(k, 0.75, h.shape), 0.75) @ w.T

    sharded = jax.jit(model, in_shardings=placed(line, (P(), P(), P("data"))), out_shardings=placed(line, P("data")))
    return sharded, model, (numbers(1, 8, 16, dtype=dtype, scale=0.4), key(5), numbers(2, 16, 8, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def transposed_between_layers(dtype: Any, bug: bool) -> Any:
    """Resharding: rows before, columns after, by constraints; and a sort along what was split."""
    line = mesh(8, names=("data",))

    def model(x: Any, f: Any, on: Any = None) -> Any:
        h = x @ f
        if on is not None:
            h = constrain(h, NamedSharding(on, P(None, "data")))
        h = jnp.sort(h, axis=0)
        if on is not None:
            h = constrain(h, NamedSharding(on, P("data")))
        return jax.nn.softmax(h, axis=-1), jnp.cumsum(h, axis=0)

    sharded = jax.jit(lambda x, f: model(x, f, line), in_shardings=placed(line, (P("data"), P())))
    return sharded, model, (numbers(1, 16, 8, dtype=dtype), numbers(2, 8, 16, dtype=dtype, scale=0.4))


@planted("right", twin="plain", has_bug=False)
def uneven_rows(dtype: Any, bug: bool) -> Any:
    """Sizes inside don't divide by the number of devices: the partitioner pads."""
    line = mesh(8, names=("data",))

    def model(w: Any, x: Any, on: Any = None) -> Any:
        h = x[:13] @ w
        if on is not None:
            h = constrain(h, NamedSharding(on, P("data")))
        h = jax.nn.gelu(h)
        return jnp.mean(h, axis=0), jnp.max(h), h

    sharded = jax.jit(lambda w, x: model(w, x, line), in_shardings=placed(line, (P(), P("data"))))
    return sharded, model, (numbers(1, 8, 8, dtype=dtype), numbers(2, 16, 8, dtype=dtype))


@planted("right", twin="plain", has_bug=False)
def noise_of_the_older_generator(dtype: Any, bug: bool) -> Any:
    """Threefry whose numbers depend on the size of the whole: each device computes all and keeps its own."""
    line = mesh(8, names=("data",))

    def model(k: Any, x: Any) -> Any:
        with jax.threefry_partitionable(False):
            noise = jax.random.normal(k, x.shape, jnp.float32)
        return jnp.tanh(x + noise.astype(x.dtype))

    sharded = jax.jit(model, in_shardings=placed(line, (P(), P("data"))), out_shardings=placed(line, P("data")))
    return sharded, model, (key(5), numbers(2, 16, 8, dtype=dtype))
