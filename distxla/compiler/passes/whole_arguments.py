"""Whether an argument of a partitioned module was given whole, and which device takes which part of it.

Such a module takes shards: a caller that has whole arrays, as the program before partitioning takes them, must cut
them. The shardings of the parameters still say how.
"""

from __future__ import annotations

from collections.abc import Callable

from distxla.compiler.passes.placements import stated_shards
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.shards import Shards

_LISTED = 3  # devices whose parts are written out


def given_whole(
    module: Module, partitions: int, k: int, dims: tuple[int, ...], key: Callable[[int | str], str]
) -> str | None:
    """How to cut an array of these sizes, in a sentence; None if it is not the whole of parameter leaf k.

    key: how the caller names the part of a device, or of device "d".
    """
    leaves = [found for p in module.entry_computation.parameters for found in stated_shards(p, partitions)]
    shape, shards, text = leaves[k]
    if partitions == 1 or len(dims) != shape.rank or shape.dims == dims:
        return None
    if shards is not None and shards.shard_dims(dims) == shape.dims and _divides(dims, shards.tiles):
        return f"give each device its part: {_parts(shards, dims, partitions, key)}, by the sharding {text}"
    if shards is None and 0 not in shape.dims and all(n % m == 0 for n, m in zip(dims, shape.dims, strict=True)):
        return f"it looks whole: give each device its part, from {key(0)} to {key(partitions - 1)}"
    return None


def leaf_names(module: Module) -> list[str]:
    """The names of the leaves of the entry's parameters: `x`, or `state{1,0}` in a tuple."""
    return [name for p in module.entry_computation.parameters for name in _named(p.name, p.shape, ())]


def _named(name: str, shape: Shape, path: tuple[int, ...]) -> list[str]:
    if shape.elements is None:
        return [f"{name}{{{','.join(map(str, path))}}}" if path else name]
    return [found for i, element in enumerate(shape.elements) for found in _named(name, element, (*path, i))]


def _divides(dims: tuple[int, ...], tiles: tuple[int, ...]) -> bool:
    return all(n % count == 0 for n, count in zip(dims, tiles, strict=True))


def _parts(shards: Shards, dims: tuple[int, ...], partitions: int, key: Callable[[int | str], str]) -> str:
    cut = [axis for axis, count in enumerate(shards.tiles) if count > 1]
    if len(cut) == 1 and [place[cut[0]] for place in shards.places] == list(range(partitions)):
        return f"{key('d')} is part d of np.split(whole, {partitions}, axis={cut[0]})"
    sizes = shards.shard_dims(dims)
    parts = []
    for partition in range(min(_LISTED, partitions)):
        place = zip(shards.places[partition], sizes, dims, strict=True)
        index = ", ".join(
            ":" if size == dimension_size else f"{p * size}:{(p + 1) * size}" for p, size, dimension_size in place
        )
        parts.append(f"{key(partition)} is whole[{index}]")
    return ", ".join(parts) + (f" and so on to {key(partitions - 1)}" if partitions > _LISTED else "")
