"""Missing psum in gradients: a parameter that devices share is updated by the gradient of a device's own part."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import cross_entropy, layer_norm, sgd
from tests.differ.planted.program import integers, mesh, numbers, planted


def replicated(params: Any) -> Any:
    return jax.tree.map(lambda _: P(), params)


@planted("missing psum (gradient)", twin="one")
def biases_left_out(dtype: Any, bug: bool) -> Any:
    """Data parallel; the mean over devices is taken of the weights' gradients only."""
    params = {
        "layers": [
            {"w": numbers(1, 8, 16, dtype=dtype, scale=0.4), "b": numbers(2, 16, dtype=dtype) * 0},
            {"w": numbers(3, 16, 4, dtype=dtype, scale=0.4), "b": numbers(4, 4, dtype=dtype) * 0},
        ]
    }

    def loss(params: Any, x: Any, labels: Any) -> Any:
        first, second = params["layers"]
        h = jax.nn.gelu(x @ first["w"] + first["b"])  # planted: biases_left_out
        logits = h @ second["w"] + second["b"]  # planted: biases_left_out
        return jnp.mean(cross_entropy(logits, labels))

    def averaged(path: Any, gradient: Any) -> Any:
        if bug and path[-1].key == "b":
            return gradient  # planted: biases_left_out
        return lax.pmean(gradient, "data")

    def step(params: Any, x: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, labels)  # planted-use: biases_left_out
        gradients = jax.tree_util.tree_map_with_path(averaged, gradients)
        return jax.tree.map(update, params, gradients), lax.pmean(value, "data")  # planted-use: biases_left_out

    def update(p: Any, g: Any) -> Any:
        return p - jnp.asarray(0.5, p.dtype) * g  # planted-use: biases_left_out

    def on(devices: Any) -> Any:
        ins, outs = (replicated(params), P("data"), P("data")), (replicated(params), P())
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=outs, check_vma=False))

    one = mesh(1, names=("data",))
    return on(mesh(8, names=("data",))), on(one), (params, numbers(5, 16, 8, dtype=dtype), integers(6, 4, 16))


def copy_to_model(bug: bool) -> Any:
    """The identity, whose gradient is the sum over the devices that share the value."""

    @jax.custom_vjp
    def copied(x: Any) -> Any:
        return x

    def forward(x: Any) -> Any:
        return x, None

    def backward(_: None, g: Any) -> Any:
        return (g if bug else lax.psum(g, "model"),)  # planted-use: backward_of_copy

    copied.defvjp(forward, backward)
    return copied


@jax.custom_vjp
def reduce_from_model(x: Any) -> Any:
    return lax.psum(x, "model")


reduce_from_model.defvjp(lambda x: (lax.psum(x, "model"), None), lambda _, g: (g,))


@planted("missing psum (gradient)", twin="plain")
def backward_of_copy(dtype: Any, bug: bool) -> Any:
    """Tensor parallel by two custom gradients; the one in front of the split layer has none of the sum."""
    copied = copy_to_model(bug)

    def block(w: Any, x: Any) -> Any:
        n = normed(x) * w["scale"] + w["shift"]  # planted-use: backward_of_copy
        h = jax.nn.gelu(copied(n) @ w["up"])  # planted: backward_of_copy
        return x + reduce_from_model(h @ w["down"])

    def normed(x: Any) -> Any:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)  # planted-use: backward_of_copy
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)  # planted-use: backward_of_copy
        return centred * lax.rsqrt(variance + 1e-3)  # planted-use: backward_of_copy

    def update(p: Any, g: Any) -> Any:
        return p - jnp.asarray(2.0, p.dtype) * g  # planted-use: backward_of_copy

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params:
            x = block(w, x)
        return jnp.mean(jnp.square(x - y))

    def step(params: Any, x: Any, y: Any) -> Any:
        gradients = lax.pmean(jax.grad(loss)(params, x, y), "data")  # planted-use: backward_of_copy
        return jax.tree.map(update, params, gradients)  # planted-use: backward_of_copy

    def plain(params: Any, x: Any, y: Any) -> Any:
        def whole(params: Any) -> Any:
            h = x
            for w in params:
                n = layer_norm(h, w["scale"], w["shift"])  # the same layer on whole arrays
                h = h + jax.nn.gelu(n @ w["up"]) @ w["down"]
            return jnp.mean(jnp.square(h - y))

        return sgd(params, jax.grad(whole)(params), 2.0)

    def layer(seed: int) -> dict[str, Any]:
        return {
            "scale": numbers(seed, 8, dtype=dtype) * 0 + 1, "shift": numbers(seed, 8, dtype=dtype) * 0,
            "up": numbers(seed + 1, 8, 16, dtype=dtype, scale=0.4),
            "down": numbers(seed + 2, 16, 8, dtype=dtype, scale=0.4),
        }  # fmt: skip

    split = {"scale": P(), "shift": P(), "up": P(None, "model"), "down": P("model")}
    params = [layer(10), layer(20)]
    sharded = jax.shard_map(
        step, mesh=mesh(2, 4), in_specs=([split, split], P("data"), P("data")), out_specs=[split, split],
        check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), plain, (params, numbers(1, 8, 8, dtype=dtype), numbers(2, 8, 8, dtype=dtype))


@planted("missing psum (gradient)", twin="one")
def scale_of_split_sequence(dtype: Any, bug: bool) -> Any:
    """Sequence parallel: each device norms its own tokens, so that the gradient of the scale is a sum over them."""

    def loss(params: Any, x: Any) -> Any:
        variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        h = x * lax.rsqrt(variance + 1e-3) * params["scale"] + params["shift"]  # planted: scale_of_split_sequence
        return jnp.sum(jnp.square(jnp.tanh(h @ params["w"]))) / 256

    def reduced(name: str, gradient: Any) -> Any:
        axes = ("data",) if bug and name in ("scale", "shift") else ("data", "model")
        return lax.psum(gradient, axes)  # planted-use: scale_of_split_sequence

    def step(params: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(params, x)  # planted-use: scale_of_split_sequence
        gradients = {name: reduced(name, g) for name, g in gradients.items()}
        return {name: update(p, gradients[name]) for name, p in params.items()}  # planted-use: scale_of_split_sequence

    def update(p: Any, g: Any) -> Any:
        return p - jnp.asarray(0.5, p.dtype) * g  # planted-use: scale_of_split_sequence

    params = {
        "scale": numbers(1, 8, dtype=dtype) * 0 + 1, "shift": numbers(2, 8, dtype=dtype) * 0,
        "w": numbers(3, 8, 8, dtype=dtype, scale=0.4),
    }  # fmt: skip

    def on(devices: Any) -> Any:
        specs = (replicated(params), P("data", "model"))
        outs = replicated(params)
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=specs, out_specs=outs, check_vma=False))

    return on(mesh(4, 2)), on(mesh(1, 1)), (params, numbers(4, 8, 8, 8, dtype=dtype))


@planted("missing psum (gradient)", twin="plain")
def norm_of_split_gradients(dtype: Any, bug: bool) -> Any:
    """Clipping by the global norm, which each device takes of its own part of the gradients."""

    def loss(params: Any, x: Any, y: Any, gather: Any) -> Any:
        h = jnp.tanh(x @ gather(params["w1"]))
        return jnp.mean(jnp.square(h @ gather(params["w2"]) - y))

    def clipped(gradients: Any, axis: str | None) -> Any:
        squares = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients))  # planted: norm_of_split_gradients
        if axis and not bug:
            squares = lax.psum(squares, axis)
        factor = 0.25 * lax.rsqrt(squares + 1e-4)  # planted-use: norm_of_split_gradients
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients)

    def step(params: Any, x: Any, y: Any) -> Any:
        gather = partial(lax.all_gather, axis_name="data", tiled=True)
        gradients = jax.grad(loss)(params, x, y, gather)
        gradients = jax.tree.map(lambda g: g / lax.axis_size("data"), gradients)
        return sgd(params, clipped(gradients, "data"), 1.0)

    def plain(params: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(params, x, y, lambda w: w)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in gradients.values()) + 1e-4)
        return {name: p - (0.25 * gradients[name] / norm).astype(p.dtype) for name, p in params.items()}

    params = {"w1": numbers(1, 16, 16, dtype=dtype, scale=0.4), "w2": numbers(2, 16, 8, dtype=dtype, scale=0.4)}
    split = {"w1": P("data"), "w2": P("data")}
    sharded = jax.shard_map(
        step, mesh=mesh(8, names=("data",)), in_specs=(split, P("data"), P("data")), out_specs=split, check_vma=False
    )
    return jax.jit(sharded), plain, (params, numbers(3, 16, 16, dtype=dtype), numbers(4, 16, 8, dtype=dtype))
