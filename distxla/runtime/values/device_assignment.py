"""Which devices of a cluster run a program, as XLA's DeviceAssignment says it."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any

from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.program.artifact import CompiledProgram

EXPECTED = "device_assignment: expected a table [replicas][partitions] of the cluster's device numbers"


@dataclass(frozen=True)
class DeviceAssignment:
    """counts: by which the program names devices.  devices: of the cluster, which run it.

    is_own: whether the program's flattened ids are its own, one for each of `devices`; else they are the cluster's.
    """

    counts: Counts
    devices: tuple[int, ...]
    is_own: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all devices that the program names run it."""
        return self.is_own or len(self.devices) == self.counts.devices

    def require_counts(self, module: Module) -> None:
        """ArgumentError, at the header, for a module that states other counts."""
        found = "the device assignment" if self.is_own else "the cluster"
        for name, wanted, stated in (
            ("replica_count", self.counts.replicas, module.replica_count),
            ("num_partitions", self.counts.partitions, module.num_partitions),
        ):
            if stated is not None and stated != wanted:
                text = f"module {module.name} has {name}={stated}, {found} {wanted}"
                raise ArgumentError(text, module.locate_header(name))

    def bind(self, program: CompiledProgram, device_count: int) -> CompiledProgram:
        """The program for these devices of a cluster of `device_count`."""
        return program.assigned(self.devices, device_count) if self.is_own else program

    @classmethod
    def of(cls, program: CompiledProgram, devices: tuple[int, ...]) -> DeviceAssignment:
        """That of a program which runs on these devices."""
        return cls(program.counts, devices, program.assignment is not None)


def assignment_of(table: Any, devices: Iterable[int] | None, counts: Counts) -> DeviceAssignment:
    """The assignment for a program on a cluster of these counts: by a table [replicas][partitions] of the cluster's
    devices, or where that is None, on some of its devices or on all.

    ArgumentError for both, for something else, and for devices that the cluster lacks or that the table names twice.
    """
    if table is not None:
        if devices is not None:
            raise ArgumentError("devices and device_assignment both say where a program runs: give one of them")
        return _of_table(table, counts.devices)
    count = counts.devices
    chosen = tuple(range(count)) if devices is None else tuple(devices)
    if not chosen or any(not 0 <= d < count for d in chosen):
        raise ArgumentError(f"devices {list(chosen)}: the cluster has devices 0 to {count - 1}")
    return DeviceAssignment(counts, chosen, is_own=False)


def _of_table(table: Any, device_count: int) -> DeviceAssignment:
    rows = [_row(row) for row in _iterable(table, "")]
    if not rows or not rows[0]:
        raise ArgumentError(f"{EXPECTED}, found an empty one")
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise ArgumentError(f"{EXPECTED}, found rows of {lengths[0]} and of {lengths[-1]} devices")
    devices = tuple(device for row in rows for device in row)
    unknown = next((device for device in devices if not 0 <= device < device_count), None)
    if unknown is not None:
        raise ArgumentError(
            f"device_assignment names device {unknown}: the cluster has devices 0 to {device_count - 1}"
        )
    device, times = Counter(devices).most_common(1)[0]
    if times > 1:
        raise ArgumentError(f"device_assignment names device {device} {'twice' if times == 2 else f'{times} times'}")
    return DeviceAssignment(Counts(len(rows), lengths[0]), devices)


def _row(row: Any) -> list[int]:
    found = []
    for device in _iterable(row, "a row "):
        try:
            found.append(operator.index(device))
        except TypeError:
            raise ArgumentError(f"{EXPECTED}, found {device!r} in it") from None
    return found


def _iterable(value: Any, where: str) -> Iterable[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ArgumentError(f"{EXPECTED}, found {where}{value!r}")
    return value


__all__ = ["DeviceAssignment", "assignment_of"]
