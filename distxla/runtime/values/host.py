"""The driver's view of a host, local or remote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from distxla.collectives.protocols import control_block as control_words
from distxla.lazy_dataclass import dataclass


class DeviceMemory(Protocol):
    """One device's memory as the driver reaches it. Offsets and sizes in bytes."""

    size: int

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """The bytes as they are: on the driver's host a view, from elsewhere a copy. Blocks until they are here."""

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Copy bytes there; a call that is issued later finds them."""


class Host(Protocol):
    """A host of a run. Control blocks of all hosts have the same layout and the same offsets.

    index: 0 is the driver's.  name: for reports.  devices: flattened ids that live there.
    """

    index: int
    name: str
    devices: range

    def control_write(self, offset: int, data: bytes) -> None:
        """Write into the host's control block while no device runs there."""

    def control_zero(self, offset: int, size: int) -> None:
        """Zero a part of the host's control block while no device runs there."""

    def control_read(self, offset: int, size: int, seconds: float | None = None) -> bytes:
        """Bytes of the host's control block, once everything was written that was asked for before; blocks, at most
        for `seconds`: ClusterError then."""


@dataclass(frozen=True)
class Lost:
    """A replica that has ended, or can't be reached any more.

    pid: its process.  host: its name where there are several.  whole: "" if the process itself was seen to end, else
    the lost whole: "host 1 (name) with the devices 3 to 7"; reason: how that was seen.  how: "by SIGKILL", where
    that is known.
    """

    pid: int
    host: str = ""
    whole: str = ""
    reason: str = ""
    how: str = ""

    def of(self, device: int) -> str:
        """Names the replica: "the replica of device 3 (process 17 on host 1 (name))"."""
        where = f" on {self.host}" if self.host else ""
        return f"the replica of device {device} (process {self.pid}{where})"


def ended_text(lost: Mapping[int, Lost]) -> str:
    """Says which replicas have ended, and how. lost: by device."""
    wholes = dict.fromkeys(one.whole for one in lost.values() if one.whole)
    names = [*wholes, *(one.of(device) for device, one in sorted(lost.items()) if not one.whole)]
    hows = "; ".join(dict.fromkeys(one.how for one in lost.values() if one.how))
    return f"{', '.join(names)} has ended{f' ({hows})' if hows else ''}"


class Records:
    """Device records, and flight recorders, as they were at one moment, for reports."""

    def __init__(self, rows: Mapping[int, bytes], devices: int, rings: Mapping[int, bytes] | None = None) -> None:
        """rows: RECORD_BYTES of each device; those that are missing read as zeros.  rings: events of each device, as
        recorder.pieces gives them; none where they are missing."""
        self.devices = devices
        self._rows = {device: memoryview(row) for device, row in rows.items()}
        self._rings = rings or {}

    def row(self, device: int) -> bytes:
        """See recorder.Recorded."""
        return bytes(self._rows.get(device, b""))

    def ring(self, device: int) -> bytes:
        """See recorder.Recorded."""
        return self._rings.get(device, b"")

    def record(self, device: int, field: int) -> int:
        """A u32 field of a device's record."""
        row = self._rows.get(device)
        return 0 if row is None else int.from_bytes(row[field : field + 4], "little")

    def record_long(self, device: int, field: int) -> int:
        """A u64 field of a device's record."""
        row = self._rows.get(device)
        return 0 if row is None else int.from_bytes(row[field : field + 8], "little")


def record_bytes(view: memoryview, device: int) -> bytes:
    """A device's record out of a control block."""
    begin = control_words.record_offset(device)
    return bytes(view[begin : begin + control_words.RECORD_BYTES])
