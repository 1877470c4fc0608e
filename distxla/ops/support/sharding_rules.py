"""The rules that a sharding keeps whatever the program: XLA's `HloSharding::Validate`, numbered."""

from __future__ import annotations

from math import prod
from typing import Any

from distxla.ir.op import RuleViolation
from distxla.ir.shape import Shape
from distxla.ir.sharding import Placement, Sharding


def check_sharding(sharding: Sharding, shape: Shape, partitions: int | None, at: str = "sharding") -> None:
    """Raise RuleViolation for the first rule that the sharding of a value of this shape breaks.

    C1: a tuple of shardings has one for each leaf of a tuple, an empty tuple one or none; one that is no tuple is every
    leaf's.  C2: tiles have the leaf's rank.  C3: a device holds one tile.  C4: with more than one partition the devices
    of tiles are all partitions, each once, and the one device is a partition; partitions: None where it isn't known.
    An array that is whole everywhere, or each device's own, may have tiles of any rank: XLA forgets them. Over a
    mesh, `[]` is the list of an array of any rank that no axis cuts. A token has nothing that is cut: JAX gives
    outfeeds the shardings of what they send.
    """
    if shape.is_token:
        return
    if sharding.kind == "tuple":
        leaves = len(list(shape.leaves()))
        held = len(sharding.elements)
        if not shape.is_tuple or (held != leaves and (leaves or held > 1)):
            value = f"a value {shape}, which has {leaves} leaves" if shape.is_tuple else f"{shape}, which is no tuple"
            raise RuleViolation(f"sharding.C1: {sharding.text} has {held} elements for {value}", at)
    for leaf, part in sharding.by_leaf(shape):
        _check_leaf(part, leaf, partitions, at)


def _check_leaf(sharding: Sharding, leaf: Shape, partitions: int | None, at: str) -> None:
    if sharding.kind == "tuple":
        raise RuleViolation(f"sharding.C1: {sharding.text} is a tuple for {leaf}, which is none", at)
    several = partitions if partitions is not None and partitions > 1 else None
    if sharding.kind == "maximal" and several is not None and sharding.device_count > several:
        text = f"sharding.C4: {sharding.text} names device {sharding.device}, the partitions are 0 to {several - 1}"
        raise RuleViolation(text, at)
    if sharding.placement is not Placement.TILED and (sharding.kind != "mesh" or sharding.placement is Placement.WHOLE):
        return
    if len(sharding.tiles) != leaf.rank and (sharding.tiles or sharding.placement is Placement.TILED):
        text = f"sharding.C2: {sharding.text} cuts {len(sharding.tiles)} dimensions, {leaf} has {leaf.rank}"
        raise RuleViolation(text, at)
    if len(set(sharding.devices)) != len(sharding.devices):
        raise RuleViolation(f"sharding.C3: {sharding.text} names a device twice", at)
    if several is not None and sorted(sharding.devices) != list(range(several)):
        text = f"sharding.C4: {sharding.text} is over {_named(sharding.devices)}, the partitions are 0 to {several - 1}"
        raise RuleViolation(text, at)


def _named(devices: tuple[int, ...]) -> str:
    if sorted(devices) == list(range(len(devices))):
        return f"{len(devices)} devices"
    return f"devices {', '.join(map(str, devices[:16]))}" + (", …" if len(devices) > 16 else "")


def meaning(sharding: Sharding, shape: Shape) -> tuple[Any, ...]:
    """Equal for all spellings of one sharding of a value of this shape."""
    return tuple(_meaning(part) for _, part in sharding.by_leaf(shape))


def _meaning(sharding: Sharding) -> tuple[Any, ...]:
    if sharding.placement is not Placement.TILED:
        return (sharding.placement, sharding.device)
    copies = len(sharding.devices) // prod(sharding.tiles)
    tile_of = tuple(sorted((device, k // copies) for k, device in enumerate(sharding.devices)))
    kinds = frozenset(sharding.last_tile_dims) - {"replicated"}
    return (sharding.placement, sharding.tiles, tile_of, kinds)
