"""Public reports of results that differ by sharding, each as a small program with that fault.

- jax#36886: gradients per sample, taken inside of shard_map of parameters that the function closes over, come out as
  sums over the devices' samples, where the same under vmap gives each its own.
- jax#21232: with random numbers that aren't partitionable, initial weights depend on how the mesh is cut.
- tt-xla#613: each device's mean of squared errors, followed by pmean, gave an infinite loss on a device that divided
  wrongly; of parts of the same size the program itself is right. Here: the parts have different sizes, and the sum in
  place of the mean that the device computed.
- tt-xla#902: a product of the same operands gave other values for each sharding of its result. Here: the result of a
  two-dimensional split is joined with rows and columns of devices exchanged.
- mujoco#1412: a simulation whose batch is split drifts from that on one device, step by step, and its actuator forces
  aren't numbers when states are made and evaluated in one mapped function. Here: each device begins with the states of
  the batch's beginning, and a controller reads the mean of its own part.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.differ.planted.program import key, mesh, numbers, planted


@planted("doubled psum", twin="plain")
def gradients_of_samples(dtype: Any, bug: bool) -> Any:
    """jax#36886. The parameters don't vary, so their gradient is summed over "data"; varying ones keep it apart."""

    def net(p: Any, x: Any) -> Any:
        return jnp.tanh(jnp.dot(p, x))  # planted: gradients_of_samples

    def per_sample(p: Any, x: Any) -> Any:
        return jax.grad(net)(p, x)  # planted: gradients_of_samples

    def samples(p: Any, xs: Any) -> Any:
        if not bug:
            p = lax.pcast(p, "data", to="varying")
        return jax.vmap(per_sample, in_axes=(None, 0))(p, xs)  # planted: gradients_of_samples

    def plain(p: Any, xs: Any) -> Any:
        return jax.vmap(jax.grad(net), in_axes=(None, 0))(p, xs)

    sharded = jax.shard_map(samples, mesh=mesh(8, names=("data",)), in_specs=(P(), P("data")), out_specs=P("data"))
    return jax.jit(sharded), plain, (numbers(1, 4, dtype=dtype), numbers(2, 16, 4, dtype=dtype))


@planted("one dropout key", twin="plain")
def weights_by_mesh(dtype: Any, bug: bool) -> Any:
    """jax#21232. Initial weights that are drawn in parts, of keys that depend on the mesh."""

    def drawn(k: Any, rows: int) -> Any:
        if bug:
            k = jax.random.fold_in(k, lax.axis_index("model"))
            return jax.random.normal(k, (rows, 8), jnp.float32)  # planted: weights_by_mesh
        whole = jax.random.normal(k, (rows * lax.axis_size("model"), 8), jnp.float32)
        return lax.dynamic_slice_in_dim(whole, lax.axis_index("model") * rows, rows)

    def initialize(k: Any, x: Any) -> Any:
        w = (drawn(k, x.shape[1]) * 0.3).astype(dtype)  # planted-use: weights_by_mesh
        return w, lax.psum(x @ w, "model")  # planted-use: weights_by_mesh

    def plain(k: Any, x: Any) -> Any:
        w = (jax.random.normal(k, (16, 8), jnp.float32) * 0.3).astype(dtype)
        return w, x @ w

    sharded = jax.shard_map(
        initialize, mesh=mesh(2, 4), in_specs=(P(), P("data", "model")), out_specs=(P("model"), P("data")),
        check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), plain, (key(9), numbers(1, 8, 16, dtype=dtype))


@planted("mean of means on uneven parts", twin="plain")
def mean_of_local_losses(dtype: Any, bug: bool) -> Any:
    """tt-xla#613. The last device's rows are padding, which its own mean counts out."""
    rows = 13

    def loss(w: Any, x: Any, y: Any) -> Any:
        errors = jnp.mean(jnp.square(x @ w - y), axis=-1)
        first = lax.axis_index("data") * x.shape[0]
        real = (first + jnp.arange(x.shape[0]) < rows).astype(errors.dtype)
        total, count = jnp.sum(errors * real), jnp.sum(real)  # planted: mean_of_local_losses
        if bug:
            return lax.pmean(total / jnp.maximum(count, 1), "data")  # planted: mean_of_local_losses
        return lax.psum(total, "data") / lax.psum(count, "data")

    def plain(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.mean(jnp.square(x @ w - y), axis=-1)[:rows])

    sharded = jax.shard_map(
        loss, mesh=mesh(8, names=("data",)), in_specs=(P(), P("data"), P("data")), out_specs=P(), check_vma=False
    )
    args = numbers(1, 8, 4, dtype=dtype, scale=0.4), numbers(2, 16, 8, dtype=dtype), numbers(3, 16, 4, dtype=dtype)
    return jax.jit(sharded), plain, args


@planted("psum for pmean", twin="one")
def loss_by_sum(dtype: Any, bug: bool) -> Any:
    """tt-xla#613. The sum over devices that isn't divided."""

    def step(w: Any, x: Any, y: Any) -> Any:
        local = jnp.mean(jnp.square(x @ w - y))
        loss = lax.psum(local, "data") if bug else lax.pmean(local, "data")  # planted: loss_by_sum
        return loss, jnp.exp(-loss)  # planted-use: loss_by_sum

    def on(devices: Any) -> Any:
        ins = (P(), P("data"), P("data"))
        return jax.jit(jax.shard_map(step, mesh=devices, in_specs=ins, out_specs=(P(), P()), check_vma=False))

    args = numbers(1, 4, 4, dtype=dtype, scale=0.2), numbers(2, 16, 4, dtype=dtype), numbers(3, 16, 4, dtype=dtype)
    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), args


@planted("wrong out_spec", twin="plain")
def product_by_blocks(dtype: Any, bug: bool) -> Any:
    """tt-xla#902. Blocks of a product on a mesh of 2x2."""

    def block(x: Any, y: Any) -> Any:
        return x @ y  # planted-use: product_by_blocks

    @jax.jit
    def run(x: Any, y: Any) -> Any:
        outs = P("model", "data") if bug else P("data", "model")  # planted: product_by_blocks
        mapped = jax.shard_map(
            block, mesh=mesh(2, 2), in_specs=(P("data"), P(None, "model")), out_specs=outs, check_vma=False
        )
        return mapped(x, y)  # planted: product_by_blocks

    return run, jnp.matmul, (numbers(1, 8, 8, dtype=dtype), numbers(2, 8, 8, dtype=dtype))


@planted("wrong offset by axis_index", twin="plain")
def states_of_the_first(dtype: Any, bug: bool) -> Any:
    """mujoco#1412. Every device makes the initial states of rows 0, 1, … instead of its own rows."""

    def initial(rows: int, first: Any) -> Any:
        angle = (first + jnp.arange(rows)) * 0.2  # planted: states_of_the_first
        return angle.astype(dtype), jnp.zeros(rows, dtype)

    def simulate(control: Any, first: Any) -> Any:
        def body(state: Any, _: Any) -> Any:
            angle, speed = state
            speed = speed + jnp.asarray(0.1, dtype) * (control - jnp.sin(angle))  # planted-use: states_of_the_first
            return (angle + jnp.asarray(0.1, dtype) * speed, speed), angle

        return lax.scan(body, initial(control.shape[0], first), None, length=4)

    def sharded_run(control: Any) -> Any:
        first = 0 if bug else lax.axis_index("data") * control.shape[0]
        return simulate(control, first)  # planted: states_of_the_first

    split = P("data")
    sharded = jax.shard_map(
        sharded_run, mesh=mesh(8, names=("data",)), in_specs=split, out_specs=((split, split), P(None, "data")),
        check_vma=False,
    )  # fmt: skip
    return jax.jit(sharded), lambda c: simulate(c, 0), (numbers(1, 16, dtype=dtype, scale=0.5),)


@planted("missing psum from the second iteration on", twin="one")
def drifting_simulation(dtype: Any, bug: bool) -> Any:
    """mujoco#1412. A controller steers by the mean of the batch, which the loop averages over devices only once."""

    def simulate(angle: Any) -> Any:
        def body(state: Any, _: Any) -> Any:
            angle, speed, mean = state
            force = jnp.square(mean) - angle  # planted-use: drifting_simulation
            speed = speed + jnp.asarray(0.25, dtype) * force
            angle = angle + jnp.asarray(0.5, dtype) * speed
            mean = jnp.mean(angle)  # planted: drifting_simulation
            mean = mean if bug else lax.pmean(mean, "data")
            return (angle, speed, mean), None

        mean = lax.pmean(jnp.mean(angle), "data")
        (angle, speed, _), _ = lax.scan(
            body, (angle, jnp.zeros_like(angle), mean), None, length=4
        )  # planted-use: drifting_simulation
        return angle, speed

    def on(devices: Any) -> Any:
        outs = (P("data"), P("data"))
        return jax.jit(jax.shard_map(simulate, mesh=devices, in_specs=P("data"), out_specs=outs, check_vma=False))

    return on(mesh(8, names=("data",))), on(mesh(1, names=("data",))), (numbers(1, 16, dtype=dtype),)
