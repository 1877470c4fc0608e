"""The groups of devices over which a value can be spread: by mesh axes where these are known, else those of the
program's collectives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations
from math import prod

from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.executable import CollectiveOp

Groups = tuple[tuple[int, ...], ...]
Axes = tuple[tuple[str, int], ...]

_AXIS = re.compile(r"[\"']([^\"']+)[\"']\s*=\s*(\d+)")
_MESH = re.compile(r"mesh[^\[\]\n]*\[([^\]]*)\]")
_MOST_AXES = 6


@dataclass(frozen=True)
class Grouping:
    """Groups of devices, each device in one.  name: `'model'`, or the groups themselves."""

    name: str
    groups: Groups


@dataclass(frozen=True)
class Devices:
    """The devices of a program, in a mesh.  axes: names and dimension sizes, the last one fastest; one axis without a
    name where nothing tells them."""

    count: int
    axes: Axes
    others: Groups = ()

    @cached_property
    def groupings(self) -> tuple[Grouping, ...]:
        """Smaller groups first."""
        names = [name for name, size in self.axes if size > 1]
        found = {}
        for many in range(1, len(names) + 1):
            for chosen in combinations(names, many):
                found[self._groups(chosen)] = self.named(chosen)
        if self.others and self.others not in found:
            found[self.others] = ",".join("{" + ",".join(map(str, group)) + "}" for group in self.others)
        return tuple(Grouping(name, groups) for groups, name in sorted(found.items(), key=lambda f: len(f[0][0])))

    def named(self, axes: Sequence[str]) -> str:
        """`'data','model'`; `all devices` where the axes have no names."""
        return ",".join(f"'{name}'" for name in axes) if all(axes) else "all devices"

    def coordinates(self, device: int) -> tuple[int, ...]:
        found = []
        for _, size in reversed(self.axes):
            found.append(device % size)
            device //= size
        return tuple(reversed(found))

    def deciding(self, values: Sequence[int]) -> tuple[int, ...]:
        """The axes along which a number of each device changes.

        values: by device. An axis counts where two devices that differ in it alone have different numbers.
        """
        return tuple(
            k
            for k, ((_, size), step) in enumerate(zip(self.axes, self._steps, strict=True))
            if any(values[d] != values[d + step] for d in range(self.count) if self.coordinates(d)[k] + 1 < size)
        )

    def in_order(self, values: Sequence[int], axes: Sequence[int]) -> bool:
        """Whether the numbers count the devices along these axes, the last one fastest."""
        for d in range(self.count):
            place, wanted = self.coordinates(d), 0
            for k in axes:
                wanted = wanted * self.axes[k][1] + place[k]
            if values[d] != wanted:
                return False
        return True

    @cached_property
    def _steps(self) -> tuple[int, ...]:
        sizes = [size for _, size in self.axes]
        return tuple(prod(sizes[k + 1 :]) for k in range(len(sizes)))

    def _groups(self, chosen: Sequence[str]) -> Groups:
        rows: dict[tuple[int, ...], list[int]] = {}
        kept = [k for k, (name, _) in enumerate(self.axes) if name not in chosen]
        for device in range(self.count):
            place = self.coordinates(device)
            rows.setdefault(tuple(place[k] for k in kept), []).append(device)
        return tuple(tuple(row) for row in rows.values())


def devices_of(module: Module, counts: Counts, text: str = "") -> Devices:
    """The devices of a module, in the mesh that it or the text of its StableHLO names.

    Where they name several of this size, the first one; where none, the groups of its collectives are taken as well.
    """
    count = counts.devices
    for axes in _meshes(module, text):
        if prod(size for _, size in axes) == count and len(axes) <= _MOST_AXES:
            return Devices(count, axes)
    grouped = (op.device_groups(counts) for op in _collectives(module) if op.round.has_groups)
    others = tuple(dict.fromkeys(tuple(map(tuple, groups)) for groups in grouped))
    partial = next((groups for groups in others if 1 < len(groups) < count), ())
    return Devices(count, (("", count),), partial)


def _meshes(module: Module, text: str) -> Iterable[Axes]:
    texts = [text, *(value for _, value in module.header)]
    texts += [op.replica_groups.mesh or "" for op in _collectives(module) if isinstance(op, GroupedCollective)]
    for each in texts:
        for found in _MESH.finditer(each):
            axes = tuple((name, int(size)) for name, size in _AXIS.findall(found.group(1)))
            if axes:
                yield axes


def _collectives(module: Module) -> Iterable[CollectiveOp]:
    for computation in module.computations:
        for instruction in computation:
            if isinstance(instruction.op, CollectiveOp):
                yield instruction.op


__all__ = ["Devices", "Grouping", "devices_of"]
