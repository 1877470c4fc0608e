"""JAX on distxla: `import distxla.jax as dxj`. Needs the extra `distxla[jax]`.

Names are imported when they are used: neither this module nor `distxla` imports JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distxla.jax.array import Array, Shard
    from distxla.jax.compiled import Compiled, compile
    from distxla.jax.global_modules import partition
    from distxla.jax.jitted import Jitted, jit
    from distxla.jax.mesh import make_mesh
    from distxla.jax.partitioning import Partitioned, partition_module
    from distxla.jax.pjrt.install import install
    from distxla.jax.values import device_put

_PLACES = {
    "Array": "distxla.jax.array",
    "Compiled": "distxla.jax.compiled",
    "Jitted": "distxla.jax.jitted",
    "Partitioned": "distxla.jax.partitioning",
    "Shard": "distxla.jax.array",
    "compile": "distxla.jax.compiled",
    "device_put": "distxla.jax.values",
    "install": "distxla.jax.pjrt.install",
    "jit": "distxla.jax.jitted",
    "make_mesh": "distxla.jax.mesh",
    "partition": "distxla.jax.global_modules",
    "partition_module": "distxla.jax.partitioning",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'distxla.jax' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Array",
    "Compiled",
    "Jitted",
    "Partitioned",
    "Shard",
    "compile",
    "device_put",
    "install",
    "jit",
    "make_mesh",
    "partition",
    "partition_module",
]
