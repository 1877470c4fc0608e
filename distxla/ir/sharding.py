"""`sharding={...}` as structured data; kept with its text so that every spelling prints back as it was read."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from math import prod
from typing import Final

from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass

# Frontend attribute of an instruction in the program of each device: the sharding that the global module states for its
# value, so devices with the same part should have the same value. It changes nothing; checks go by it.
DECLARED_SHARDING: Final = "distxla.declared_sharding"


class Placement(Enum):
    """A sharding's statement about one array. Its value completes "the array is …"."""

    OPEN = "left to a partitioner"
    WHOLE = "whole on every device"
    OWN = "each device's own"
    TILED = "cut into tiles"
    SINGLE = "on one device only"
    PARTIAL_SUM = "a sum that is still to be taken over devices"
    UNCLEAR = "placed by a kind of subgroup that has no meaning"


@dataclass(frozen=True, slots=True)
class Sharding:
    """One sharding, or a tuple of them.

    kind: replicated, maximal, manual, unreduced, unknown, devices, mesh or tuple.  device: of maximal.
    tile_dims and devices: of `devices=[2,4]<=[8]` and of a mesh (devices expanded to ids in tile order).
    replicate_on_last: `last_tile_dim_replicate`.  last_tile_dims: subgroup kinds, as ("manual", "replicated").
    elements: of a tuple.  text: exactly the text between and including the braces, blanks normalised.
    """

    kind: str
    text: str
    device: int | None = None
    tile_dims: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    replicate_on_last: bool = False
    last_tile_dims: tuple[str, ...] = ()
    elements: tuple[Sharding, ...] = ()

    @property
    def tiles(self) -> tuple[int, ...]:
        """Into how many parts each dimension of the array is cut, where there are tiles."""
        extra = len(self.last_tile_dims) + (1 if self.replicate_on_last else 0)
        return self.tile_dims[: len(self.tile_dims) - extra]

    @property
    def placement(self) -> Placement:
        """Of an array; a tuple's elements have their own."""
        simple = {
            "replicated": Placement.WHOLE,
            "maximal": Placement.SINGLE,
            "manual": Placement.OWN,
            "unreduced": Placement.PARTIAL_SUM,
            "unknown": Placement.OPEN,
        }.get(self.kind)
        if simple is not None:
            return simple
        if prod(self.tiles) > 1:
            return Placement.TILED
        subgroups = zip(self.last_tile_dims, self.tile_dims[len(self.tiles) :])
        kinds = {kind for kind, size in subgroups if size > 1}
        for kind, placement in (
            ("maximal", Placement.UNCLEAR),
            ("unknown", Placement.UNCLEAR),
            ("unreduced", Placement.PARTIAL_SUM),
            ("manual", Placement.OWN),
        ):
            if kind in kinds:
                return placement
        return Placement.WHOLE

    @property
    def device_count(self) -> int:
        """How many devices the sharding, or its elements, are about, at least."""
        own = max(self.devices, default=-1) if self.device is None else self.device
        return max([own + 1, *(element.device_count for element in self.elements)])

    def by_leaf(self, shape: Shape) -> Iterator[tuple[Shape, Sharding]]:
        """Each leaf of the shape and its sharding; one that is no tuple is every leaf's, as XLA reads it.

        Ends early where a tuple of shardings has fewer elements than the shape has leaves.
        """
        leaves = list(shape.leaves())
        yield from zip(leaves, self.elements if self.kind == "tuple" else [self] * len(leaves))
