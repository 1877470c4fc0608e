"""Doubled psum: a value that is whole already is summed once more."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import cross_entropy, dense, layer_norm, sgd
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("doubled psum", twin="one")
def helper_and_caller(dtype: Any, bug: bool) -> Any:
    """The layer's function sums, and so does the block that calls it."""

    def row_parallel(h: Any, w: Any) -> Any:
        return lax.psum(h @ w, "model")

    def mlp(w: Any, x: Any) -> Any:
        y = row_parallel(jax.nn.gelu(x @ w["up"]), w["down"])
        if bug:
            y = lax.psum(y, "model")  # planted: helper_and_caller
        return layer_norm(x + y + w["bias"], 1, 0)  # planted-use: helper_and_caller

    def on(devices: Any) -> Any:
        split = {"up": P(None, "model"), "down": P("model"), "bias": P()}
        return jax.jit(
            jax.shard_map(mlp, mesh=devices, in_specs=(split, P("data")), out_specs=P("data"), check_vma=False)
        )

    w = {
        "up": numbers(1, 8, 16, dtype=dtype, scale=0.4), "down": numbers(2, 16, 8, dtype=dtype, scale=0.4),
        "bias": numbers(3, 8, dtype=dtype) * 0,
    }  # fmt: skip
    return on(mesh(2, 4)), on(mesh(1, 1)), (w, numbers(4, 8, 8, dtype=dtype))


@planted("doubled psum", twin="one")
def gradient_that_jax_sums(dtype: Any, bug: bool) -> Any:
    """With the check of varying axes on, JAX sums the gradients of parameters that don't vary by itself."""

    def loss(w: Any, x: Any, labels: Any) -> Any:
        return jnp.sum(cross_entropy(jnp.tanh(x @ w["a"]) @ w["b"], labels)) / 16

    def step(w: Any, x: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x, labels)
        if bug:
            gradients = jax.tree.map(all_reduced, gradients)  # planted: gradient_that_jax_sums
        return sgd(w, gradients, 0.5), lax.psum(value, "data")

    def all_reduced(g: Any) -> Any:
        return lax.psum(lax.pcast(g, "data", to="varying"), "data")  # planted: gradient_that_jax_sums

    def on(devices: Any) -> Any:
        whole = {"a": P(), "b": P()}
        ins = (whole, P("data"), P("data"))
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=(whole, P())))

    w = {"a": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, 4, dtype=dtype, scale=0.4)}
    one = mesh(1, names=("data",))
    return on(mesh(8, names=("data",))), on(one), (w, numbers(3, 16, 8, dtype=dtype), integers(4, 4, 16))


@planted("doubled psum", twin="plain")
def sum_inside_the_loss(dtype: Any, bug: bool) -> Any:
    """With that check off, the gradient of a psum is a psum: a loss that is reduced before it is differentiated gives
    each device its gradient as many times too large as there are devices."""

    def total(w: Any, x: Any, y: Any) -> Any:
        return jnp.sum(jnp.square(dense(x, w["w"], w["b"]) - y)) / 64

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            value = total(w, x, y)
            return lax.psum(value, "data") if bug else value  # planted: sum_inside_the_loss

        value, gradients = jax.value_and_grad(loss)(w)  # planted-use: sum_inside_the_loss
        gradients = lax.psum(gradients, "data")  # planted-use: sum_inside_the_loss
        return sgd(w, gradients, 0.25), value if bug else lax.psum(value, "data")

    def plain(w: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(total)(w, x, y)
        return sgd(w, gradients, 0.25), value

    w = {"w": numbers(1, 8, 4, dtype=dtype, scale=0.4), "b": numbers(2, 4, dtype=dtype) * 0}
    whole = {"w": P(), "b": P()}
    sharded = jax.shard_map(
        step, mesh=mesh(8, names=("data",)), in_specs=(whole, P("data"), P("data")), out_specs=(whole, P()),
        check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), plain, (w, numbers(3, 16, 8, dtype=dtype), numbers(4, 16, 4, dtype=dtype))


@planted("doubled psum", twin="plain")
def one_axis_too_many(dtype: Any, bug: bool) -> Any:
    """Activations are split over "data", so that the sum over "model" is whole; the code sums over both axes."""
    axes = ("data", "model") if bug else ("model",)

    def statistics(x: Any, width: int) -> Any:
        return lax.psum(jnp.sum(x, -1, keepdims=True), axes) / width  # planted: one_axis_too_many

    def model(w: Any, x: Any) -> Any:
        h = x @ w
        return jnp.tanh(h - statistics(h, 16))  # planted-use: one_axis_too_many

    def plain(w: Any, x: Any) -> Any:
        h = x @ w
        return jnp.tanh(h - jnp.mean(h, -1, keepdims=True))

    sharded = jax.shard_map(
        model, mesh=mesh(4, 2), in_specs=(P(None, "model"), P("data")), out_specs=P("data", "model"), check_vma=False
    )
    return jax.jit(sharded), plain, (numbers(1, 8, 16, dtype=dtype, scale=0.5), numbers(2, 8, 8, dtype=dtype))
