"""Frames between the driver and the agent of another host, over their connection (distxla/wire/).

Every payload is a table of little-endian numbers, or bytes of memory; nothing in it is trusted to be in range.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from distxla.collectives.protocols.control_block import RECORD_BYTES
from distxla.errors import ClusterError

CONTROL_BLOCK = (1 << 64) - 1  # READ's device, for the control block
DRIVER_PURPOSE = 1  # of a connection (wire.handshake); relays' have another
MOST_ROWS = 1 << 20  # of a table in a payload

_PAIR32, _PAIR64 = struct.Struct("<II"), struct.Struct("<QQ")
_COUNTS = struct.Struct("<III")


class Command(IntEnum):
    """Kinds of frames. a, b, c, tag: numbers of the frame's header."""

    # from the driver
    RUN = 1  # tag: runs within the call; payload: pack_run
    POISON = 2  # make every wait on the host return
    END = 3  # POISON, then get the devices back; answered by ENDED. payload: u32 devices
    CLEAR = 4  # tag: epoch of the relays; zero communicators' state, allow calls; answered by CLEARED.
    # payload: pack_clear
    CONTROL = 5  # a: offset in the control block; payload: bytes for it
    WRITE = 6  # a: device, b: offset in its memory; payload: bytes for it
    READ = 7  # tag: number of the request, a: device or CONTROL_BLOCK, b: offset, c: bytes; answered by DATA
    DUMP = 8  # answered by RECORDS
    PUNCH = 9  # a: offset, b: bytes that are not needed any more, of all devices' memories; c: 1 for the common one
    BYE = 10  # end the replicas; answered by ENDED once they are gone
    WAKE = 11  # a: offset in the control block: wake who sleeps on the u32 there
    AWAIT = 12  # tag: number of the request, a: offset in the control block; answered by DATA, without bytes, once the
    # u32 there is not b any more, or after c milliseconds
    CLOCK = 13  # tag: number of the request; answered by DATA with the ns of the agent's CLOCK_MONOTONIC, u64
    LEAVE = 14  # END, but no device is killed: answered by ENDED when all have come back, however late that is, or when
    # there is an END or BYE behind it
    WAITS = 15  # answered by WAITING
    # from the agent
    DONE = 32  # a call is over. a: call_loops.CALL_DONE or CALL_POISONED; payload: pack_pairs of device, nanoseconds
    LOST = 33  # a replica has ended. a: device; payload: how, UTF-8
    FAILED = 34  # the host can't go on. a: 1 if a message was damaged, repeated or lost; payload: why, UTF-8
    DATA = 35  # tag: of the READ; payload: the bytes
    RECORDS = 36  # payload: pack_records
    ENDED = 37  # payload: pack_records, as the devices are now
    CLEARED = 38
    WAITING = 40  # payload: for which hosts the relay waits, lines of UTF-8
    INJECTED = 39  # a fault between hosts has been injected. a: its number; payload: what was done, UTF-8


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
    """What `pack_pairs` has packed."""
    return _Table(payload).rows(_PAIR64, len(payload) // _PAIR64.size)


def pack_clear(areas: Sequence[tuple[int, int]], words: Mapping[int, int]) -> bytes:
    """areas: (offset, bytes) to zero.  words: values of u32 words by their number, written afterwards."""
    head = _COUNTS.pack(len(areas), len(words), 0)
    rows = b"".join(_PAIR64.pack(*area) for area in areas)
    return head + rows + b"".join(_PAIR64.pack(*item) for item in words.items())


def unpack_clear(payload: memoryview) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Areas and (word, value)."""
    table = _Table(payload)
    areas, words, _ = table.take(_COUNTS)
    return table.rows(_PAIR64, areas), table.rows(_PAIR64, words)


def pack_devices(devices: Iterable[int]) -> bytes:
    """u32 each."""
    return b"".join(device.to_bytes(4, "little") for device in devices)


def unpack_devices(payload: memoryview) -> list[int]:
    """What `pack_devices` has packed."""
    return [int.from_bytes(payload[i : i + 4], "little") for i in range(0, len(payload) // 4 * 4, 4)]


def pack_records(records: Mapping[int, bytes]) -> bytes:
    """A u64 device and its record each."""
    return b"".join(device.to_bytes(8, "little") + record for device, record in records.items())


def unpack_records(payload: bytes | bytearray) -> dict[int, bytes]:
    """What `pack_records` has packed."""
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
