"""The objects of a cluster that a user still refers to: arrays, views of them, executables.

A look is a count. Only where something seems to be left the garbage is collected, and then the objects that still live
are looked for.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from distxla.runtime.arrays.columns import Column
from distxla.runtime.arrays.device_array import DeviceArray
from distxla.runtime.cluster import Cluster
from distxla.runtime.leftovers import living_arrays, living_executables, value_bytes, value_offsets

MOST_LISTED = 8
_DEPTH = 4  # of containers between a module and an object that its name holds


class Holdings:
    """What the user held of a cluster when its use began; `left` compares."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._bytes, self._offsets = value_bytes(cluster), value_offsets(cluster)
        self._executables = {executable.serial for executable in living_executables(cluster)}

    @property
    def seem_left(self) -> bool:
        """Whether there is more than at the beginning; garbage may count."""
        return self._more_bytes > 0 or bool(self._more_executables())

    @property
    def _more_bytes(self) -> int:
        return value_bytes(self._cluster) - self._bytes

    def _more_executables(self) -> list[Any]:
        return [e for e in living_executables(self._cluster) if e.serial not in self._executables]

    def left(self) -> list[str]:
        """Sentences about what is held now and was not then. Collects the garbage if something is."""
        if not self.seem_left:
            return []
        gc.collect()
        found = [f"{each!r}{_held_by(each)}" for each in self._more_executables()]
        if self._more_bytes > 0:
            arrays = living_arrays(self._cluster, self._offsets)
            what = "arrays" if arrays else "views of arrays that are gone (NumPy arrays or DLPack capsules)"
            found.append(f"{self._more_bytes} bytes of each device's memory, in {what}")
            found += [f"  {_described(each)}{_held_by(each)}" for each in arrays[:MOST_LISTED]]
            found += [f"  … {len(arrays)} arrays in all"] if len(arrays) > MOST_LISTED else []
        return found


def _described(array: DeviceArray | Column) -> str:
    if isinstance(array, DeviceArray):
        return f"{array.hlo_shape} on device {array.device}"
    return f"{array.shape} on each of {len(array.devices)} devices"


def _held_by(thing: object) -> str:
    """`, held by the name kept of the module test_step`; "" where nothing so simple holds it."""
    level: list[Any] = [thing]
    for _ in range(_DEPTH):
        names = {id(each) for each in level}
        above = [each for each in gc.get_referrers(*level) if each is not level and id(each) not in names]
        for holder in above:
            module = sys.modules.get(str(holder.get("__name__"))) if type(holder) is dict else None
            if module is not None and vars(module) is holder:
                name = next((name for name, value in holder.items() if id(value) in names), None)
                if name is not None:
                    return f", held by the name {name} of the module {module.__name__}"
        level = [each for each in above if isinstance(each, list | tuple | dict | set | Column) or _is_of_jax(each)]
        if not level:
            return ""
    return ""


def _is_of_jax(thing: object) -> bool:
    """Whether it is an array or a function of distxla.jax, which need not be there."""
    return type(thing).__module__.startswith("distxla.jax.")
