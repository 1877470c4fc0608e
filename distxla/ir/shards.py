"""How a global array is cut into one shard a partition, for shardings that cut evenly."""

from __future__ import annotations

from math import prod
from typing import Any

from distxla.ir.shape import Shape
from distxla.ir.unwritten import empty
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Shards:
    """tiles: into how many equal parts each dimension is cut.  places: of each partition, which part it holds, one
    number a dimension; several partitions may hold the same one."""

    tiles: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]

    @staticmethod
    def whole(rank: int, partitions: int) -> Shards:
        """Every partition holds all of the array."""
        return Shards((1,) * rank, ((0,) * rank,) * partitions)

    @property
    def is_whole(self) -> bool:
        return all(count == 1 for count in self.tiles)

    @property
    def text(self) -> str:
        """The sharding as HLO text has it."""
        if self.is_whole:
            return "{replicated}"
        order = sorted(range(len(self.places)), key=lambda partition: self.places[partition])
        copies = len(order) // prod(self.tiles)
        sizes = ",".join(map(str, (*self.tiles, copies) if copies > 1 else self.tiles))
        last = " last_tile_dim_replicate" if copies > 1 else ""
        return f"{{devices=[{sizes}]{','.join(map(str, order))}{last}}}"

    def shard_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """The dimension sizes of a shard of an array; each must be a multiple of its number of tiles."""
        return tuple(size // count for size, count in zip(dims, self.tiles, strict=True))

    def split(self, array: Any, partition: int) -> Any:
        """The partition's shard, a view of the NumPy array."""
        dims = self.shard_dims(array.shape)
        place = self.places[partition]
        return array[tuple(slice(p * size, (p + 1) * size) for p, size in zip(place, dims, strict=True))]

    def join(self, shards: list[Any]) -> Any:
        """The global NumPy array from every partition's shard; where several hold the same part, the first one's."""
        if self.is_whole:
            return shards[0]
        first = shards[0]
        joined = empty([size * count for size, count in zip(first.shape, self.tiles, strict=True)], first.dtype)
        filled = set()
        for partition, shard in enumerate(shards):
            if self.places[partition] not in filled:
                filled.add(self.places[partition])
                self.split(joined, partition)[...] = shard
        assert len(filled) == prod(self.tiles)
        return joined


@dataclass(frozen=True)
class GlobalArray:
    """An argument or a result of a global module: the shape of the whole, and how it is cut."""

    shape: Shape
    shards: Shards

    @property
    def shard_shape(self) -> Shape:
        return self.shape.with_dims(self.shards.shard_dims(self.shape.dims))

    def is_whole(self, dims: tuple[int, ...]) -> bool:
        """Whether an array of these dimension sizes is the whole of an array that is cut."""
        return dims == self.shape.dims and not self.shards.is_whole
