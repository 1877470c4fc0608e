"""Memory limits of a run: of each device, and of all devices of each host together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from distxla.errors import ArgumentError, OutOfMemoryError
from distxla.machine.byte_counts import amount, bytes_of
from distxla.machine.memory_limits import Limit
from distxla.program.abi import ALIGNMENT
from distxla.runtime.values.memory_need import Need, Room, require_host_memory, require_memory, segment_bytes
from distxla.wording import named


class Budget:
    """The limits, once the hosts are known (with an embedded Ray, from the start).

    wanted: bytes of each device's memory as the user states them, None for as much as the hosts have.  limit: of each
    device's memory, the same on all hosts; None until it is known.  values_apart: each memory has two parts of that
    size, and other processes use the second one, for their arrays: they share the pages, not the addresses.
    """

    def __init__(self, wanted: int | None, *, values_apart: bool = False) -> None:
        self._wanted = wanted
        self._parts = 2 if values_apart else 1
        self._hosts: list[tuple[str, range, Callable[[], Limit]]] = []
        self.limit: Limit | None = None

    def settle(self, hosts: Sequence[tuple[str, range, Room, Callable[[], Limit]]]) -> None:
        """Set the limit. hosts: (name, devices, room for their memories, function that gives the free memory for all of
        them). OutOfMemoryError if a host can't map its devices' memories."""
        limits = [
            room.device_memory(len(devices), self._wanted, self._parts) for _, devices, room, _ in hosts if len(devices)
        ]
        self.limit = min(limits, key=lambda limit: limit.bytes)
        self._hosts = [(name, devices, free) for name, devices, _, free in hosts]

    def settle_here(self, devices: int, free: Callable[[], Limit]) -> None:
        """As `settle`, with all devices on this host."""
        self.settle([("this host", range(devices), Room.here(), free)])

    @property
    def device_bytes(self) -> int:
        """Bytes of each device's memory."""
        assert self.limit is not None
        return self.limit.bytes // ALIGNMENT * ALIGNMENT

    @property
    def segment_bytes(self) -> int:
        """Bytes of the segment of each device's memory."""
        return self._parts * self.part_bytes

    @property
    def part_bytes(self) -> int:
        """Bytes of each part of such a segment."""
        return segment_bytes(self.device_bytes)

    def require(self, need: Need, devices: Sequence[int]) -> None:
        """OutOfMemoryError if these devices can't hold a program's memory: one of them, or all of one host
        together."""
        require_memory(need, self.limit or Room.here().device_memory(1, self._wanted))
        for name, there, free in self._hosts:
            if count := sum(device in there for device in devices):
                require_host_memory([(need, count)], free(), name)


def wanted(growth: int, devices: Sequence[int]) -> str:
    """What can't be had: devices 0, 1: 50 MiB more each can't be had."""
    whose = named(devices) if devices else "a device"
    each = " each" if len(devices) > 1 else ""
    return f"{whose}: {amount(growth)} more{each} can't be had"


class HostHeadroom:
    """The free memory of this host for its devices' memories; see memory.Headroom.

    devices: of this host.  resident: bytes that they hold.  free: bytes for all that they hold and can still take.
    """

    def __init__(self, devices: range, resident: Callable[[], int], free: Callable[[], Limit]) -> None:
        self._devices = devices
        self._free = free
        self.resident = resident

    def count(self, devices: Sequence[int]) -> int:
        return sum(device in self._devices for device in devices) if devices else 1

    def require(self, promised: int, growth: int, devices: Sequence[int]) -> None:
        free = self._free()
        if promised <= free.bytes:
            return
        held = self.resident()
        left = amount(max(0, free.bytes - held))
        raise OutOfMemoryError(
            f"{wanted(growth, devices)}: this host has {left} left ({free.source}), and its devices hold {amount(held)}"
        )

    def promise(self, promised: int) -> None:
        """See memory.Headroom: nobody else has to know."""


def checked_memory(size: int | str | None) -> int | None:
    """A size that a user states, in bytes; ArgumentError if it is no positive size."""
    if size is None:
        return None
    try:
        found = bytes_of(size) if isinstance(size, str) else operator.index(size)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"device_memory: expected a number of bytes such as 2GiB, found {size!r}") from error
    if found < 1:
        raise ArgumentError(f"device_memory: expected a number of bytes above 0, found {size!r}")
    return found
