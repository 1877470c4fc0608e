"""Shardy's attributes as they stand in the frontend attributes of HLO text.

`#sdy.mesh<["y"=2, "x"=4]>`, `#sdy.sharding<@mesh, [{"y"}, {}]>`, `#sdy.sharding_per_value<[<@mesh, [..]>, ..]>`,
`#sdy<manual_axes{"y", "x"}>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from distxla.ir.shards import Shards

_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d+)')
_NAME = re.compile(r'"([^"]*)"(\s*:\s*\(\d+\)\d+)?')
_MESH = re.compile(r"([\w.\-]+)\s*=\s*#sdy\.mesh<")
_ONE = re.compile(r"<\s*(@[\w.\-]+|mesh<.*?>)\s*,\s*\[")
_DEVICES = re.compile(r"device_ids\s*=\s*\[([\d\s,]*)\]")


class UnreadableSharding(ValueError):
    """The attribute is not understood, or says something that distxla doesn't have; the message says what."""


@dataclass(frozen=True)
class Mesh:
    """axes: names and sizes, the last one fastest.  devices: partition numbers in that order."""

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(size for _, size in self.axes)


def read_meshes(text: str) -> dict[str, Mesh]:
    """`{mesh = #sdy.mesh<["i"=8]>, …}`: by name."""
    found = {}
    for match in _MESH.finditer(text):
        body = _balanced(text, match.end() - 1)
        axes = tuple((name, int(size)) for name, size in _AXIS.findall(body.partition("]")[0]))
        count = prod(size for _, size in axes)
        ids = _DEVICES.search(body)
        if ids and not axes:
            continue  # of one device, for what lies on that one alone
        devices = tuple(int(i) for i in ids[1].split(",")) if ids and ids[1].strip() else tuple(range(count))
        if sorted(devices) != list(range(count)):
            raise UnreadableSharding(f"the devices of the mesh {match[1]} are not 0 to {count - 1}, each once")
        found[match[1]] = Mesh(axes, devices)
    return found


def read_manual_axes(text: str) -> frozenset[str]:
    """`#sdy<manual_axes{"y", "x"}>`."""
    return frozenset(name for name, _ in _NAME.findall(text))


def read_shardings(text: str, meshes: Mapping[str, Mesh], partitions: int) -> list[Shards]:
    """Every sharding of the text, one or a list of them. UnreadableSharding where one can't be expressed."""
    found = []
    for match in _ONE.finditer(text):
        name = match[1].removeprefix("@")
        if name not in meshes:
            raise UnreadableSharding(f"there is no mesh {name!r}")
        dims = _balanced(text, match.end() - 1)
        rest = text[match.end() - 1 + len(dims) :]
        if re.match(r"\s*,\s*unreduced", rest):
            raise UnreadableSharding("an unreduced sharding")
        found.append(_shards(_dimensions(dims), meshes[name], partitions))
    return found


def read_named_sharding(text: str, partitions: int) -> Shards:
    """HLO's own form: `{mesh['x'=2,'y'=4], [{'x'}, {}]}`. UnreadableSharding where it can't be expressed."""
    text = text.replace("'", '"')
    start = text.index("[")
    axes_text = _balanced(text, start)
    axes = tuple((name, int(size)) for name, size in _AXIS.findall(axes_text))
    rest = text[start + len(axes_text) :]
    if "device_ids" in rest or "unreduced" in rest or "manual" in rest:
        raise UnreadableSharding(f"the sharding {text}")
    at = rest.find("[")
    dims = _balanced(rest, at) if at >= 0 else "[]"
    return _shards(_dimensions(dims), Mesh(axes, tuple(range(prod(size for _, size in axes)))), partitions)


def _dimensions(text: str) -> list[tuple[str, ...]]:
    """`[{"y"}, {"x", ?}p1, {}]`: the axes of each dimension."""
    dims = []
    for part in re.findall(r"\{([^}]*)\}", text):
        names = _NAME.findall(part)
        if any(sub for _, sub in names):
            raise UnreadableSharding(f"a part of an axis, {{{part}}}")
        dims.append(tuple(name for name, _ in names))
    return dims


def _shards(dims: list[tuple[str, ...]], mesh: Mesh, partitions: int) -> Shards:
    sizes = dict(mesh.axes)
    for axes in dims:
        for axis in axes:
            if axis not in sizes:
                raise UnreadableSharding(f"the mesh has no axis {axis!r}")
    if all(not axes for axes in dims):
        return Shards.whole(len(dims), partitions)
    if mesh.size != partitions:
        raise UnreadableSharding(f"a mesh of {mesh.size} devices where there are {partitions} partitions")
    places: list[tuple[int, ...]] = [()] * partitions
    coordinates = product(*(range(size) for _, size in mesh.axes))
    for device, position in zip(mesh.devices, coordinates, strict=True):
        at = dict(zip(sizes, position, strict=True))
        place = []
        for axes in dims:
            part = 0
            for axis in axes:
                part = part * sizes[axis] + at[axis]
            place.append(part)
        places[device] = tuple(place)
    return Shards(tuple(prod(sizes[axis] for axis in axes) for axes in dims), tuple(places))


def _balanced(text: str, start: int) -> str:
    """From the bracket at `start` to the one that closes it; quoted text doesn't count."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        symbol = text[at]
        if symbol == '"':
            quoted = not quoted
        elif not quoted and symbol in "<[{(":
            depth += 1
        elif not quoted and symbol in ">]})":
            depth -= 1
            if depth == 0:
                return text[start : at + 1]
    raise UnreadableSharding("an attribute without its end")
