"""Meshes without devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import AbstractMesh, AxisType

from distxla.jax.private.lowering import lower_gpu_collectives


def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[str], *, axis_types: Sequence[Any] | None = None) -> Any:
    """A mesh of as many devices as the product of `axis_shapes`: an AbstractMesh, for which JAX needs no devices.

        mesh = dxj.make_mesh((2, 4), ("dp", "tp"))

    Device k of the program is at the k-th place of the mesh, in row-major order.  axis_types: of
    `jax.sharding.AxisType`, all Auto by default: XLA's partitioner shards what the program leaves open.
    """
    lower_gpu_collectives()
    types = (AxisType.Auto,) * len(axis_names) if axis_types is None else tuple(axis_types)
    return AbstractMesh(tuple(axis_shapes), tuple(axis_names), axis_types=types)
