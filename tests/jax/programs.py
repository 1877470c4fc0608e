"""JAX programs over abstract meshes, and what they give on all partitions of the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from distxla.ir.counts import Counts
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module

P = PartitionSpec


def mesh(*sizes: int, names: Sequence[str] = ("x", "y", "z")) -> AbstractMesh:
    """Of automatic axes."""
    return AbstractMesh(sizes, tuple(names[: len(sizes)]), axis_types=(AxisType.Auto,) * len(sizes))


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    """Different ones, below 1."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 13 - 5) / 13).astype(dtype).reshape(shape)


def lowered(
    f: Callable[..., Any], on: AbstractMesh, args: Sequence[Any], specs: Sequence[Any], **options: Any
) -> jax.stages.Lowered:
    """`jax.jit(f)` of sharded arguments: a global module, of which JAX has no device."""
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(on, s)) for a, s in zip(args, specs)]
    return jax.jit(f, keep_unused=True, **options).trace(*given).lower(lowering_platforms=("cpu",))


def stablehlo(module: jax.stages.Lowered) -> str:
    """With its source locations."""
    return str(module.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True))


def run(partitioned: Partitioned, args: Sequence[Any]) -> list[Any]:
    """The whole results, of whole arguments."""
    n = partitioned.partitions * partitioned.replicas
    rows = [
        [a.shards.split(x, d % partitioned.partitions) for a, x in zip(partitioned.parameters, args, strict=True)]
        for d in range(n)
    ]
    module = parse_module(partitioned.text)
    outs = run_reference(module, rows, Counts(partitioned.replicas, partitioned.partitions))
    return [a.shards.join([outs[d][k] for d in range(n)]) for k, a in enumerate(partitioned.results)]


def assert_as_jax(f: Callable[..., Any], partitioned: Partitioned, args: Sequence[Any]) -> None:
    """The partitioned program gives what JAX computes on one device."""
    wanted = jax.tree.leaves(jax.jit(f)(*args))
    for want, found in zip(wanted, run(partitioned, args), strict=True):
        np.testing.assert_allclose(found, np.asarray(want), rtol=2e-5, atol=1e-5)
        assert found.dtype == want.dtype
