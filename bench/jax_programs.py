"""JAX programs whose calls are measured, on any mesh of one axis "i"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

P = PartitionSpec


@dataclass(frozen=True)
class Program:
    """function: takes `state` and `batch`, returns the next state and a small value.  state, batch: pytrees of NumPy
    arrays.  specs: how each of both is cut."""

    function: Callable[[Any, Any], Any]
    state: Any
    batch: Any
    specs: tuple[PartitionSpec, PartitionSpec]


def psum(mesh: Any) -> Program:
    """An all-reduce of 64 floats a device."""
    total = jax.shard_map(lambda s, x: (s, jax.lax.psum(x, "i")), mesh=mesh, in_specs=(P(), P("i")), out_specs=P())
    return Program(total, np.float32(0), np.ones((4 * mesh.size, 16), np.float32), (P(), P("i")))


def mlp(mesh: Any) -> Program:
    """A training step of a small network, partitioned by XLA from shardings alone."""
    del mesh

    def loss(params: Any, batch: Any) -> Any:
        hidden = jnp.tanh(batch[0] @ params["w1"] + params["b1"])
        return jnp.mean((hidden @ params["w2"] - batch[1]) ** 2)

    def step(params: Any, batch: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, slope), value

    random = np.random.default_rng(0)
    sizes = {"w1": (64, 128), "b1": (128,), "w2": (128, 16)}
    params = {name: random.normal(size=size, scale=0.1).astype(np.float32) for name, size in sizes.items()}
    batch = tuple(random.normal(size=(256, size)).astype(np.float32) for size in (64, 16))
    return Program(step, params, batch, (P(), P("i")))


def ring(mesh: Any) -> Program:
    """Blocks of 4 KiB go once round all devices, which add them up."""
    count = mesh.size
    pairs = [(d, (d + 1) % count) for d in range(count)]

    def body(s: Any, x: Any) -> Any:
        def turn(_: Any, state: Any) -> Any:
            block, total = state
            return jax.lax.ppermute(block, "i", pairs), total + block

        return s, jax.lax.fori_loop(0, count, turn, (x, jnp.zeros_like(x)))[1]

    function = jax.shard_map(body, mesh=mesh, in_specs=(P(), P("i")), out_specs=(P(), P("i")))
    return Program(function, np.float32(0), np.ones((count, 1024), np.float32), (P(), P("i")))


PROGRAMS: dict[str, Callable[[Any], Program]] = {"psum": psum, "mlp": mlp, "ring": ring}


def options(program: Program, mesh: Any) -> dict[str, Any]:
    """For `jit`: the state comes back as it was cut, and is donated."""
    state, batch = (NamedSharding(mesh, spec) for spec in program.specs)
    return {"in_shardings": (state, batch), "donate_argnums": 0}
