"""JAX on distxla: `import distxla.jax as dxj`. Needs the extra `distxla[jax]`.

Names are imported when they are used: neither this module nor `distxla` imports JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distxla.lazy_names import lazy_names

if TYPE_CHECKING:
    from distxla.jax.array import Array, Shard
    from distxla.jax.comparing import compare
    from distxla.jax.compiled import Compiled, compile
    from distxla.jax.jitted import Jitted, jit
    from distxla.jax.mesh import make_mesh
    from distxla.jax.partitioner.global_modules import partition
    from distxla.jax.partitioner.partitioning import Partitioned, partition_module
    from distxla.jax.pjrt.install import install
    from distxla.jax.values import device_put

__getattr__, __dir__ = lazy_names(
    globals(),
    {
        "Array": "distxla.jax.array",
        "Compiled": "distxla.jax.compiled",
        "Jitted": "distxla.jax.jitted",
        "Partitioned": "distxla.jax.partitioner.partitioning",
        "Shard": "distxla.jax.array",
        "compare": "distxla.jax.comparing",
        "compile": "distxla.jax.compiled",
        "device_put": "distxla.jax.values",
        "install": "distxla.jax.pjrt.install",
        "jit": "distxla.jax.jitted",
        "make_mesh": "distxla.jax.mesh",
        "partition": "distxla.jax.partitioner.global_modules",
        "partition_module": "distxla.jax.partitioner.partitioning",
    },
)

__all__ = [
    "Array",
    "Compiled",
    "Jitted",
    "Partitioned",
    "Shard",
    "compare",
    "compile",
    "device_put",
    "install",
    "jit",
    "make_mesh",
    "partition",
    "partition_module",
]
