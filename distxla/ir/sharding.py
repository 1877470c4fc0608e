"""`sharding={...}` as structured data; kept with its text so that every spelling prints back as it was read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharding:
    """One sharding, or a tuple of them.

    kind: replicated, maximal, manual, unreduced, unknown, devices, mesh or tuple.  device: of maximal.
    tile_dims and devices: of `devices=[2,4]<=[8]` (devices expanded to ids in tile order).
    replicate_on_last: `last_tile_dim_replicate`.  last_tile_dims: subgroup kinds, as ("manual", "replicated").
    elements: of a tuple.  text: exactly what stood between and including the braces, blanks normalised.
    """

    kind: str
    text: str
    device: int | None = None
    tile_dims: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    replicate_on_last: bool = False
    last_tile_dims: tuple[str, ...] = ()
    elements: tuple[Sharding, ...] = ()
