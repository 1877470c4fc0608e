"""Frames between the driver and the agent of another host, over their connection (distxla/wire/).

Every payload is a table of little-endian numbers, or bytes of memory; nothing in it is trusted to be in range.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from distxla.collectives.protocols.control_block import RECORD_BYTES
from distxla.collectives.transports.transport import Restart
from distxla.errors import ClusterError
from distxla.wire.frame import Frame, Frames, frame, u8, u32, u64

MOST_ROWS = 1 << 20  # of a table in a payload

_PAIR32, _PAIR64 = struct.Struct("<II"), struct.Struct("<QQ")
_COUNTS = struct.Struct("<III")
_REQUEST = "number of the request"


# --- from the driver


@frame(1, payload="pack_run")
class Run(Frame):
    """Begin a call."""

    runs: int = u32("of the programs, one after the other")


@frame(2)
class Abort(Frame):
    """Make every wait on the host return."""


@frame(3, payload="devices, u32 each")
class End(Frame):
    """ABORT, then get the devices back, by force if need be; answered by ENDED."""


@frame(4, payload="pack_clear")
class Clear(Frame):
    """Zero communicators' state and allow calls again; answered by CLEARED."""

    epoch: int = u32("that the proxies begin")


@frame(5, payload="bytes for it")
class WriteControl(Frame):
    """Write into the control block."""

    offset: int = u64("in the control block")


@frame(6, payload="bytes for it")
class Write(Frame):
    """Write into a device's memory."""

    device: int = u32("flattened id")
    offset: int = u64("in its memory")


@frame(7)
class Read(Frame):
    """Read a device's memory; answered by DATA."""

    request: int = u32(_REQUEST)
    device: int = u32("flattened id")
    offset: int = u64("in its memory")
    size: int = u64("bytes")


@frame(8)
class Dump(Frame):
    """Answered by RECORDS."""


@frame(9)
class Punch(Frame):
    """Bytes that are not needed any more, of all devices' memories or of the memory that they share."""

    offset: int = u64("of the first")
    size: int = u64("bytes")
    common: int = u8("1 for the memory that devices have in common")


@frame(10)
class Bye(Frame):
    """End the replicas; answered by ENDED once they are gone."""


@frame(11)
class Wake(Frame):
    """Wake the devices that sleep on a u32 of the control block."""

    offset: int = u64("in the control block")


@frame(12)
class Await(Frame):
    """Answered by DATA, without bytes, once a u32 of the control block has another value, or after a time."""

    request: int = u32(_REQUEST)
    offset: int = u64("in the control block")
    value: int = u32("that it must have no longer")
    milliseconds: int = u32("at most")


@frame(13)
class Clock(Frame):
    """Answered by DATA with the ns of the agent's CLOCK_MONOTONIC, u64."""

    request: int = u32(_REQUEST)


@frame(14, payload="devices, u32 each")
class Leave(Frame):
    """END, but no device is killed: ENDED comes when all are back, however late, or when an END or BYE is behind it."""


@frame(15)
class Waits(Frame):
    """Answered by WAITING."""


@frame(16)
class ReadControl(Frame):
    """Read the control block; answered by DATA."""

    request: int = u32(_REQUEST)
    offset: int = u64("in the control block")
    size: int = u64("bytes")


@frame(17)
class Watch(Frame):
    """Tell by PROCESS_ENDED when a process of the host that uses its devices has ended."""

    number: int = u32("by which the driver knows it")
    pid: int = u32("of it")


# --- from the agent


@frame(32, payload="pack_pairs of device, nanoseconds")
class Done(Frame):
    """A call is over."""

    outcome: int = u32("call_loops.CALL_DONE or CALL_ABORTED")


@frame(33, payload="how, UTF-8")
class ReplicaEnded(Frame):
    """A replica has ended."""

    device: int = u32("its flattened id")


@frame(34, payload="why, UTF-8")
class Failed(Frame):
    """The host can't go on."""

    damaged: int = u8("1 if a message was damaged, repeated or lost")


@frame(35, payload="the bytes")
class Data(Frame):
    """An answer."""

    request: int = u32(_REQUEST)


@frame(36, payload="pack_records")
class DeviceRecords(Frame):
    """The devices' records."""


@frame(37, payload="pack_records")
class Ended(Frame):
    """The devices are back; their records, as they are now."""


@frame(38)
class Cleared(Frame):
    """State is zeroed; calls are allowed."""


@frame(39, payload="the effect, UTF-8")
class Injected(Frame):
    """A fault between hosts has been injected."""

    number: int = u32("of the fault")


@frame(40, payload="for which hosts the proxy waits, lines of UTF-8")
class Waiting(Frame):
    """The long waits of the host's proxy."""


@frame(41, payload="the signal that has ended it, UTF-8; nothing where it has exited")
class ProcessEnded(Frame):
    """A process of WATCH has ended."""

    number: int = u32("by which the driver knows it")
    status: int = u32("with which it has exited; 0xFFFFFFFF where that is not known")


UNKNOWN_STATUS = 0xFFFFFFFF

DRIVER_FRAMES = Frames(
    1,
    "between the driver and an agent",
    *(Run, Abort, End, Clear, WriteControl, Write, Read, Dump, Punch, Bye, Wake, Await, Clock, Leave, Waits),
    *(ReadControl, Watch),
    *(Done, ReplicaEnded, Failed, Data, DeviceRecords, Ended, Cleared, Injected, Waiting, ProcessEnded),
)


def pack_run(
    numbers: Mapping[int, int], areas: Sequence[tuple[int, int]], data: Sequence[memoryview]
) -> list[bytes | memoryview]:
    """numbers: program by device.  areas: (offset, bytes) in the control block of arguments' and results' offsets,
    with their contents in `data`."""
    head = _COUNTS.pack(len(numbers), len(areas), 0)
    pairs = b"".join(_PAIR32.pack(device, number) for device, number in numbers.items())
    return [head, pairs, b"".join(_PAIR64.pack(*area) for area in areas), *data]


def unpack_run(payload: memoryview) -> tuple[dict[int, int], list[tuple[int, memoryview]]]:
    """Program by device, and (offset, bytes) to be written into the control block."""
    table = _Table(payload)
    devices, areas, _ = table.take(_COUNTS)
    numbers = dict(table.rows(_PAIR32, devices))
    places = table.rows(_PAIR64, areas)
    return numbers, [(offset, table.bytes(size)) for offset, size in places]


def pack_pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Rows of two u64."""
    return b"".join(_PAIR64.pack(a, b) for a, b in pairs)


def unpack_pairs(payload: memoryview) -> list[tuple[int, int]]:
    """The inverse of `pack_pairs`."""
    return _Table(payload).rows(_PAIR64, len(payload) // _PAIR64.size)


def pack_clear(restart: Restart) -> bytes:
    """All but the epoch, which the frame has."""
    rows = [*restart.areas, *restart.words]
    return _COUNTS.pack(len(restart.areas), len(restart.words), 0) + b"".join(_PAIR64.pack(*row) for row in rows)


def unpack_clear(epoch: int, payload: memoryview) -> Restart:
    """The inverse of `pack_clear`."""
    table = _Table(payload)
    areas, words, _ = table.take(_COUNTS)
    return Restart(epoch, tuple(table.rows(_PAIR64, areas)), tuple(table.rows(_PAIR64, words)))


def pack_devices(devices: Iterable[int]) -> bytes:
    """u32 each."""
    return b"".join(device.to_bytes(4, "little") for device in devices)


def unpack_devices(payload: memoryview) -> list[int]:
    """The inverse of `pack_devices`."""
    return [int.from_bytes(payload[i : i + 4], "little") for i in range(0, len(payload) // 4 * 4, 4)]


def pack_records(records: Mapping[int, bytes]) -> bytes:
    """A u64 device and its record each."""
    return b"".join(device.to_bytes(8, "little") + record for device, record in records.items())


def unpack_records(payload: bytes | bytearray) -> dict[int, bytes]:
    """The inverse of `pack_records`."""
    row = 8 + RECORD_BYTES
    return {
        int.from_bytes(payload[i : i + 8], "little"): bytes(payload[i + 8 : i + row])
        for i in range(0, len(payload) // row * row, row)
    }


class _Table:
    """Takes numbers from the front of a payload."""

    def __init__(self, payload: memoryview) -> None:
        self._rest = payload

    def bytes(self, size: int) -> memoryview:
        if size > len(self._rest):
            raise ClusterError("a frame is shorter than it says")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def take(self, row: struct.Struct) -> tuple[int, ...]:
        return row.unpack(self.bytes(row.size))

    def rows(self, row: struct.Struct, count: int) -> list[tuple[int, int]]:
        if count > MOST_ROWS:
            raise ClusterError(f"a frame announces {count} rows")
        return [(a, b) for a, b in row.iter_unpack(self.bytes(row.size * count))]
