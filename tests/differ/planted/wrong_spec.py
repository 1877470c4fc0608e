"""Specs of shard_map that don't say how a value lies: of an argument, or of a result with the check of axes off."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.layers import cross_entropy
from tests.differ.planted.program import integers, mesh, numbers, planted


@planted("wrong in_spec", twin="one")
def weight_by_columns(dtype: Any, bug: bool) -> Any:
    """A square weight of which the layer expects rows: it is given columns, of the same number."""

    def model(w: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w["up"])
        return lax.psum(product(h, w), "model") + x

    def product(h: Any, w: Any) -> Any:
        rows = w["down"].reshape(h.shape[1], -1)  # planted-use: weight_by_columns
        return h @ rows  # planted-use: weight_by_columns

    def on(devices: Any) -> Any:
        down = P(None, "model") if bug else P("model")
        ins = ({"up": P(None, "model"), "down": down}, P("data"))

        @jax.jit
        def run(w: Any, x: Any) -> Any:
            mapped = jax.shard_map(model, mesh=devices, in_specs=ins, out_specs=P("data"), check_vma=False)
            return mapped(w, x)  # planted: weight_by_columns

        return run

    w = {"up": numbers(1, 8, 8, dtype=dtype, scale=0.4), "down": numbers(2, 8, 8, dtype=dtype, scale=0.4)}
    return on(mesh(4, 2)), on(mesh(1, 1)), (w, numbers(3, 8, 8, dtype=dtype))


@planted("wrong in_spec", twin="one")
def labels_in_another_order(dtype: Any, bug: bool) -> Any:
    """The batch is split over both axes, and the labels over the same axes the other way round."""

    def model(w: Any, x: Any, labels: Any) -> Any:
        losses = cross_entropy(x @ w, labels)  # planted-use: labels_in_another_order
        return lax.pmean(jnp.mean(losses), ("data", "model")), losses

    def on(devices: Any) -> Any:
        batch = P(("data", "model"))
        labelled = P(("model", "data")) if bug else batch

        @jax.jit
        def run(w: Any, x: Any, labels: Any) -> Any:
            return jax.shard_map(  # planted: labels_in_another_order
                model, mesh=devices, in_specs=(P(), batch, labelled), out_specs=(P(), batch), check_vma=False
            )(w, x, labels)

        return run

    args = numbers(1, 8, 4, dtype=dtype), numbers(2, 16, 8, dtype=dtype), integers(3, 4, 16)
    return on(mesh(4, 2)), on(mesh(1, 1)), args


@planted("wrong in_spec", twin="plain")
def position_split_by_width(dtype: Any, bug: bool) -> Any:
    """Sequence parallel with as many positions as features: the table of positions is cut along the features, and its
    transposed part has the right shape."""

    def model(w: Any, position: Any, x: Any) -> Any:
        if position.shape[0] != x.shape[1]:
            position = position.T  # planted-use: position_split_by_width
        h = x + position  # planted-use: position_split_by_width
        return jnp.tanh(h @ w)

    @jax.jit
    def run(w: Any, position: Any, x: Any) -> Any:
        table = P(None, "model") if bug else P("model")
        mapped = jax.shard_map(
            model, mesh=mesh(2, 4), in_specs=(P(), table, P("data", "model")), out_specs=P("data", "model")
        )
        return mapped(w, position, x)  # planted: position_split_by_width

    def plain(w: Any, position: Any, x: Any) -> Any:
        return jnp.tanh((x + position) @ w)

    args = numbers(1, 8, 8, dtype=dtype, scale=0.4), numbers(2, 8, 8, dtype=dtype), numbers(3, 4, 8, 8, dtype=dtype)
    return run, plain, args


@planted("wrong out_spec", twin="one")
def loss_of_each_device(dtype: Any, bug: bool) -> Any:
    """The result is declared to be the same on all devices; each returns the mean of its part."""

    def model(w: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(x @ w)
        loss = jnp.mean(jnp.square(h - y))  # planted: loss_of_each_device
        return h, loss if bug else lax.pmean(loss, "data")

    def on(devices: Any) -> Any:
        @jax.jit
        def run(w: Any, x: Any, y: Any) -> Any:
            mapped = jax.shard_map(
                model, mesh=devices, in_specs=(P(), P("data"), P("data")),
                out_specs=(P("data"), P()),  # planted: loss_of_each_device
                check_vma=False,
            )  # fmt: skip
            return mapped(w, x, y)  # planted-use: loss_of_each_device

        return run

    args = numbers(1, 8, 4, dtype=dtype, scale=0.4), numbers(2, 16, 8, dtype=dtype), numbers(3, 16, 4, dtype=dtype)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args


@planted("wrong out_spec", twin="plain")
def heads_joined_in_another_order(dtype: Any, bug: bool) -> Any:
    """Rows are split over both axes; the result is joined with the axes in the other order."""

    def model(w: Any, x: Any) -> Any:
        return jax.nn.gelu(x @ w)  # planted-use: heads_joined_in_another_order

    @jax.jit
    def run(w: Any, x: Any) -> Any:
        outs = P(("model", "data")) if bug else P(("data", "model"))  # planted: heads_joined_in_another_order
        mapped = jax.shard_map(
            model, mesh=mesh(4, 2), in_specs=(P(), P(("data", "model"))), out_specs=outs, check_vma=False
        )
        return mapped(w, x)  # planted: heads_joined_in_another_order

    return run, lambda w, x: jax.nn.gelu(x @ w), (numbers(1, 8, 8, dtype=dtype), numbers(2, 16, 8, dtype=dtype))


@planted("wrong out_spec", twin="one")
def columns_joined_as_rows(dtype: Any, bug: bool) -> Any:
    """A tensor parallel layer's columns, put below each other and cut to the size that the caller expects."""

    def model(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w)  # planted-use: columns_joined_as_rows

    def on(devices: Any, columns: bool) -> Any:
        @jax.jit
        def run(w: Any, x: Any) -> Any:
            outs = P(None, "model") if columns else P("model")
            mapped = jax.shard_map(model, mesh=devices, in_specs=(P(None, "model"), P()), out_specs=outs)
            y = mapped(w, x)  # planted: columns_joined_as_rows
            return y.reshape(x.shape[0], w.shape[1]) * 2  # planted-use: columns_joined_as_rows

        return run

    args = numbers(1, 8, 16, dtype=dtype, scale=0.4), numbers(2, 8, 8, dtype=dtype)
    eight, one = mesh(8, names=("model",)), mesh(1, names=("model",))
    return on(eight, not bug), on(one, True), args
