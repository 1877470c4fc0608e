"""Streams between the host and one device: infeed, outfeed, and the channels of host transfers. Layout in bytes.

A stream carries items, arrays in nested tuples, from one producer to one consumer, in order. It has

    state   in the control block, T_*: words that both sides read and sleep on
    block   in the device's memory: SLOTS slots of SLOT_BYTES, then the area

Item n is described by slot n % SLOTS; its leaves follow one another, each aligned, in the area or, where the host
puts an item that does not fit there, in a block of its own. The producer fills slot and payload and then raises
T_POSTED; the consumer reads them and then raises T_TAKEN. So an item is in the stream as a whole or not at all, and a
call that fails in between loses nothing.

The area's first NEAR_BYTES are a ring, and the rest is another one, each filled round and round with items in one piece
(`room`). The near one stays in a core's cache: two threads that pass items on through it are several times as fast as
through the far one. The producer uses that for items that are larger, and when the near one is full and the consumer
has taken nothing for PATIENCE_S: a program may give, and a host put, as much as the area holds before the other side
begins to take.

An item's type is a number: `type_number` of its shape, which the host leaves nested or gives as the flat tuple of its
leaves; a device takes either.
"""

from __future__ import annotations

import hashlib
from math import prod

from distxla.collectives.protocols.layout import Area, Order
from distxla.collectives.protocols.rounds import COUNTS
from distxla.ir.shape import Shape

_DEVICE, _HOST, _PRODUCER, _CONSUMER = "device", "host", "producer", "consumer"

STATE_BYTES = 384
STREAM = Area("stream", "one a device and stream; each side's words have cache lines of their own", STATE_BYTES)
T_POSTED = STREAM.u32(
    0,
    "posted",
    _PRODUCER,
    Order.RELEASE,
    "twice the items posted, modulo 2^32; bit 0 once the producer has ended the stream",
    futex=True,
)
T_TAKEN = STREAM.u32(
    64, "taken", _CONSUMER, Order.RELEASE, "twice the items taken: all up to there are done with", futex=True
)
T_DEVICE_SLEEPS = STREAM.u32(
    128, "device sleeps", _DEVICE, Order.UPDATED, "it is about to sleep on the other side's word"
)
T_HOST_SLEEPS = STREAM.u32(
    192, "host sleeps", _HOST, Order.RELEASE, "threads about to sleep on the device's word; going to sleep is the fence"
)
T_ISSUED = STREAM.u32(
    256,
    "issued",
    _DEVICE,
    Order.PLAIN,
    "twice the items that it has asked for (recv), which it may take in another order",
)
T_IDLE = STREAM.u32(260, "idle", _DEVICE, Order.PLAIN, "`taken` as it has seen it when it lost patience, plus 1")
T_WRITE = STREAM.u64(264, "write", _DEVICE, Order.PLAIN, "where in the area its last item of the near ring ends")
T_WRITE_FAR = STREAM.u64(272, "write far", _DEVICE, Order.PLAIN, "of the far ring")
T_COUNTED = STREAM.part(280, "counts", COUNTS, "of the items that the device has taken or posted")
T_BLOCK = STREAM.u64(320, "block", _HOST, Order.PLAIN, "offset of the block in the device's memory")
T_CAPACITY = STREAM.u64(328, "capacity", _HOST, Order.PLAIN, "bytes of the area")

SLOT_BYTES = 64
SLOT = Area("slot of a stream", "SLOTS in the stream's block, in the device's memory", SLOT_BYTES)
L_OFFSET = SLOT.u64(0, "offset", _PRODUCER, Order.PLAIN, "offset of the payload in the device's memory")
L_BYTES = SLOT.u64(8, "bytes", _PRODUCER, Order.PLAIN, "of the payload, a multiple of ALIGNMENT, at least that")
L_TYPE = SLOT.u64(16, "type", _PRODUCER, Order.PLAIN, "number of the item's type")
L_PROGRAM = SLOT.u32(24, "program", _PRODUCER, Order.PLAIN, "number of the program that has posted it")
L_SITE = SLOT.u32(28, "site", _PRODUCER, Order.PLAIN, "its site")
L_TAKEN = SLOT.u32(32, "taken", "device", Order.PLAIN, "taken out of order; 0 when posted")
SLOTS = 4096
SLOTS_BYTES = SLOTS * SLOT_BYTES

NEAR_BYTES = 2 << 20
AREA_BYTES = 32 << 20
PATIENCE_S = 0.003
ALIGNMENT = 64


def type_number(shape: Shape) -> int:
    """u64 of an item's type without layouts; a tuple of one is the same as its element."""
    return int.from_bytes(hashlib.blake2b(_text(shape).encode(), digest_size=8).digest(), "little")


def _text(shape: Shape) -> str:
    if shape.elements is None:
        return str(shape.without_layout())
    if len(shape.elements) == 1:
        return _text(shape.elements[0])
    return f"({','.join(map(_text, shape.elements))})"


def accepted_types(item: Shape) -> tuple[int, int]:
    """The type numbers that an item of this shape may have: nested, and as its leaves."""
    return type_number(item), type_number(Shape.one_or_tuple(tuple(item.leaves())))


def places(item: Shape) -> tuple[list[int], int]:
    """Where each leaf begins in the payload, and the payload's bytes."""
    begins, end = [], 0
    for leaf in item.leaves():
        begins.append(end)
        end += aligned(prod(leaf.dims) * leaf.dtype.byte_size)
    return begins, max(ALIGNMENT, end)


def aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def room(first: int | None, write: int, size: int, begin: int, end: int) -> int | None:
    """Where in a ring of the area from `begin` to `end` the next item of `size` bytes goes; None if it has to wait.

    first: where the ring's first item not yet taken begins, None if all were taken: then it starts at `begin` again.
    write: where its last one ended.
    """
    if first is None:
        return begin if begin + size <= end else None
    if write > first:
        if write + size <= end:
            return write
        return begin if begin + size <= first else None
    return write if write + size <= first else None
