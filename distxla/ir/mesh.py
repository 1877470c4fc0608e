"""Devices in a grid of named axes, of which shardings and replica groups name some."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from distxla.ir.sharding import Sharding
from distxla.lazy_dataclass import dataclass


class MeshError(ValueError):
    """Axes that a mesh does not have, or cannot be split into; the message says which."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh, or a part of one. above: the size of the slower parts; dimension_size: of the part."""

    name: str
    above: int
    dimension_size: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """axes: names and dimension sizes, the last one fastest.  devices: flattened ids in that order.

    Without axes: the one device that holds an array, or () for a mesh that says nothing.
    """

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(dimension_size for _, dimension_size in self.axes)

    def axis(self, name: str, above: int = 1, dimension_size: int | None = None) -> Axis:
        """The axis, or its part of `dimension_size` below one of `above`. MeshError where the mesh has none such."""
        whole = dict(self.axes).get(name)
        if whole is None:
            raise MeshError(f"the mesh has no axis {name!r}")
        part = whole if dimension_size is None else dimension_size
        if whole % (above * part):
            raise MeshError(f"({above}){part} does not divide axis {name!r} of size {whole}")
        if dimension_size is not None and part >= whole:
            raise MeshError(f"({above}){part} is no part of axis {name!r}, whose size is {whole}")
        return Axis(name, above, part)

    def rows(self, chosen: Sequence[Axis]) -> list[list[int]]:
        """The ids, a row for each position on the other axes; within a row the last chosen axis is fastest.

        Raises MeshError where two of the chosen parts overlap.
        """
        import numpy as np

        dims: list[int] = []
        position: dict[tuple[str, int], int] = {}  # (axis, size above) -> dimension of the split mesh
        for name, whole in self.axes:
            cuts = {1, whole}
            for axis in chosen:
                if axis.name == name:
                    cuts |= {axis.above, axis.above * axis.dimension_size}
            for above, below in pairwise(sorted(cuts)):
                if below % above:
                    raise MeshError("the parts of one axis overlap")
                position[name, above] = len(dims)
                dims.append(below // above)
        picked: list[int] = []
        for axis in chosen:
            if axis.dimension_size == 1:
                continue
            where = position[axis.name, axis.above]
            if where in picked or dims[where] != axis.dimension_size:
                raise MeshError("the parts of one axis overlap")
            picked.append(where)
        rest = [d for d in range(len(dims)) if d not in picked]
        size = prod(dims[d] for d in picked)
        table: list[list[int]] = (
            np.array(self.devices or range(self.size)).reshape(dims).transpose(rest + picked).reshape(-1, size).tolist()
        )
        return table

    def sharding(
        self,
        text: str,
        dims: Sequence[Sequence[Axis]] | None,
        manual: Sequence[Axis] = (),
        unreduced: Sequence[Axis] = (),
    ) -> Sharding:
        """An array's sharding over the mesh in tiles: `dims`, the axes by which each dimension is cut, None where all
        of the array is everywhere whatever its rank; the axes along which each device has a value of its own, or a
        part of a sum; copies along all others. Raises MeshError."""
        rows = self.rows([axis for axes in (*(dims or ()), manual, unreduced) for axis in axes])
        tiles = [prod(axis.dimension_size for axis in axes) for axes in dims or ()]
        kinds = []
        for kind, axes in (("manual", manual), ("unreduced", unreduced)):
            if axes:
                tiles.append(prod(axis.dimension_size for axis in axes))
                kinds.append(kind)
        if len(rows) > 1:
            tiles.append(len(rows))
            kinds.append("replicated")
        devices = tuple(device for column in zip(*rows, strict=True) for device in column)
        if dims is None:
            return Sharding("replicated", text)
        return Sharding("mesh", text, tile_dims=tuple(tiles), devices=devices, last_tile_dims=tuple(kinds))
