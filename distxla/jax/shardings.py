"""How arrays are cut: between XLA's shardings, as the partitioner gives them, and JAX's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from distxla.errors import ArgumentError
from distxla.ir.shards import Shards

_MESH = re.compile(r"sdy\.mesh @\w+ = <\[((?:\"[^\"]*\"=\d+(?:, )?)+)\]>")
_TILING = re.compile(r"<=\[([\d,]+)\]")  # of GSPMD's shardings: `{devices=[4,1]<=[4]}`
_AXIS = re.compile(r"\"([^\"]*)\"=(\d+)")

_interned: dict[Shards, Shards] = {}


def interned(shards: Shards) -> Shards:
    """The one object of all equal ones, so that `is` compares them."""
    return _interned.setdefault(shards, shards)


def mesh_of(stablehlo: str, axis_types: Mapping[str, Any]) -> AbstractMesh | None:
    """The mesh of a lowered module whose devices are in order; None where it has none, or several.

    axis_types: of axes by name, Auto for the others.
    """
    found = {tuple((name, int(size)) for name, size in _AXIS.findall(axes)) for axes in _MESH.findall(stablehlo)}
    if len(found) != 1:
        return None
    (axes,) = found
    names, sizes = tuple(name for name, _ in axes), tuple(size for _, size in axes)
    return AbstractMesh(sizes, names, axis_types=tuple(axis_types.get(name, AxisType.Auto) for name in names))


def most_devices(stablehlo: str) -> int:
    """The devices of the largest mesh, or of GSPMD's shardings, in a lowered module; 1 without any. JAX counts those
    of shardings only, not those of a `shard_map` over an abstract mesh."""
    meshes = [prod(int(size) for _, size in _AXIS.findall(axes)) for axes in _MESH.findall(stablehlo)]
    tilings = [prod(map(int, sizes.split(","))) for sizes in set(_TILING.findall(stablehlo))]
    return max(meshes + tilings, default=1)


def named_sharding(shards: Shards, mesh: Any) -> NamedSharding | None:
    """The NamedSharding over this mesh that cuts an array like that, in its shortest form; None where there is
    none, and without a mesh."""
    if mesh is None or mesh.size != len(shards.places):
        return None
    sizes: Mapping[str, int] = mesh.shape
    steps = _steps(sizes, mesh.size)
    entries: list[tuple[str, ...]] = []
    for dimension in range(len(shards.tiles)):
        # place of device d in this dimension = sum over axes of coordinate * weight
        weights = {name: shards.places[steps[name]][dimension] for name, size in sizes.items() if size > 1}
        entries.append(tuple(sorted((name for name in weights if weights[name]), key=lambda n: -weights[n])))
    if _cut(entries, sizes, steps, mesh.size) != shards.places:
        return None
    while entries and not entries[-1]:
        entries.pop()
    return NamedSharding(mesh, PartitionSpec(*(axes[0] if len(axes) == 1 else axes or None for axes in entries)))


def _cut(
    entries: list[tuple[str, ...]], sizes: Mapping[str, int], steps: Mapping[str, int], devices: int
) -> tuple[tuple[int, ...], ...]:
    """`Shards.places` of a partition specification."""

    def place(device: int, axes: tuple[str, ...]) -> int:
        found = 0
        for name in axes:
            found = found * sizes[name] + device // steps[name] % sizes[name]
        return found

    return tuple(tuple(place(device, axes) for axes in entries) for device in range(devices))


def shards_of_sharding(sharding: NamedSharding, shape: tuple[int, ...]) -> Shards:
    """How a NamedSharding cuts an array of this shape; ArgumentError where not in equal parts, and for one that is
    over devices in another order than the mesh's."""
    if not isinstance(sharding, NamedSharding):
        raise ArgumentError(f"expected a NamedSharding, found {type(sharding).__name__}")
    mesh, spec = sharding.mesh, tuple(sharding.spec)
    if len(spec) > len(shape):
        raise ArgumentError(f"{sharding.spec} is for arrays of {len(spec)} dimensions and more, found {len(shape)}")
    entries = [() if axes is None else (axes,) if isinstance(axes, str) else tuple(axes) for axes in spec]
    entries += [()] * (len(shape) - len(spec))
    sizes: Mapping[str, int] = mesh.shape
    tiles = tuple(prod(sizes[name] for name in axes) for axes in entries)
    if any(size % count for size, count in zip(shape, tiles)):
        raise ArgumentError(f"an array of {list(shape)} cannot be cut evenly by {sharding.spec} over {dict(sizes)}")
    return interned(Shards(tiles, _cut(entries, sizes, _steps(sizes, mesh.size), mesh.size)))


def _steps(sizes: Mapping[str, int], devices: int) -> dict[str, int]:
    """By how much a step along each axis changes the device's number."""
    found = {}
    for name, size in sizes.items():
        devices //= size
        found[name] = devices
    return found


def index_of(shards: Shards, partition: int, dims: tuple[int, ...]) -> tuple[slice, ...]:
    """The part of a whole array of these dimension sizes that a partition holds."""
    sizes, place = shards.shard_dims(dims), shards.places[partition]
    return tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, sizes, strict=True))


def is_key(dtype: Any) -> bool:
    """Whether it is the type of JAX's keys of random numbers, whose elements are arrays of integers."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))
