"""Run as a program with four host devices: functions over a mesh of real devices, by JAX and by distxla.

Prints a line for each that agrees.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import distxla as dx
import distxla.jax as dxj

P = PartitionSpec
MESH = jax.make_mesh((2, 2), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)


def placed(value: Any, *spec: Any) -> jax.Array:
    return jax.device_put(value, NamedSharding(MESH, P(*spec)))


def layer(x: Any, w: Any) -> Any:
    return {"y": jnp.tanh(x @ w), "norm": jnp.linalg.norm(x)}


def moe(x: Any, w: Any) -> Any:
    """Columns go to the devices of the experts, and rows back."""
    there = jax.lax.all_to_all(x, "tp", 1, 0, tiled=True)
    return jax.lax.psum(jax.lax.all_to_all(there @ w, "tp", 0, 1, tiled=True), "dp")


def scatter(x: Any) -> Any:
    return jax.lax.psum_scatter(x, "dp", tiled=True), jax.lax.axis_index("tp") + jnp.zeros(1, jnp.int32)


def constrained(x: Any) -> Any:
    y = jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P(None, "tp")))
    return jnp.sort(y, axis=0), (y * y).sum(1)


@custom_partitioning
def reversed_parts(x: Any) -> Any:
    return x


reversed_parts.def_partition(
    infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
    partition=lambda mesh, args, result: (mesh, lambda part: part[::-1], args[0].sharding, (args[0].sharding,)),
    sharding_rule="i j -> i j",
)


def main() -> None:
    x, w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), np.eye(8, dtype=np.float32) + 0.25
    manual = jax.shard_map(moe, mesh=MESH, in_specs=(P(("dp", "tp")), P("tp")), out_specs=P("tp"), check_vma=False)
    scattered = jax.shard_map(scatter, mesh=MESH, in_specs=P(None, "tp"), out_specs=(P("dp", "tp"), P("tp")))
    programs = {
        "layer": (layer, (placed(x, "dp"), placed(w, None, "tp"))),
        "moe": (manual, (placed(x, ("dp", "tp")), placed(w, "tp"))),
        "scatter": (scattered, (placed(x, None, "tp"),)),
        "constrained": (constrained, (placed(x, "dp"),)),
        "custom partitioning": (reversed_parts, (placed(x, "dp"),)),
    }
    with dx.Cluster(partitions=4) as cluster:
        for name, (function, args) in programs.items():
            want = jax.jit(function)(*args)
            lowered = jax.jit(function).lower(*args)
            assert dxj.partition(lowered).num_partitions == 4
            got = dxj.compile(lowered, cluster=cluster)(*args)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)
            print(name, jax.tree.map(lambda a, b: bool(a.sharding.spec == b.sharding.spec), got, want), flush=True)


if __name__ == "__main__":
    main()
