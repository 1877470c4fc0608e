"""Shared state of channels: layout in bytes. It is in the control block, zeroed before a run; written by devices but
for the words that the host process configures.

    end         of each send and recv of a program, one a device
    directory   one for all devices: where the state of each pair is, by its number
    pair        one for each (channel, stream, source, target): counters, then RING slots

A context's u32 is its transfer's ticket: the pair's number and the low half of the transfer's number within it; 0
where the device takes no part. Transfer q of a pair uses slot q % RING. Words that count transfers hold q + 1 for the
last one that they speak of, so they are compared by the sign of a difference, and are never reset.
"""

from __future__ import annotations

from distxla.collectives.protocols.control_block import HOST_PROCESS
from distxla.collectives.protocols.layout import Area, Order
from distxla.collectives.protocols.rounds import COUNTED, COUNTS
from distxla.ir.shape import Shape

ALIGNMENT = 64

_SOURCE, _TARGET, _MOVER = "source", "target", "the side that claims"

END_BYTES = 64
END = Area("end of a channel", "one a device for each send and recv of a program", END_BYTES)
E_PAIR = END.u64(0, "pair", HOST_PROCESS, Order.PLAIN, "offset of the pair's state; 0 on a device that takes no part")
E_NUMBER = END.u32(8, "number", HOST_PROCESS, Order.PLAIN, "the pair's number, from 1")
E_FIRST = END.u32(
    12, "first", HOST_PROCESS, Order.PLAIN, "first execution of the instruction in a run that transfers, from 0"
)
E_LAST = END.u32(16, "last", HOST_PROCESS, Order.PLAIN, "last one, inclusive")
E_RUN = END.u32(20, "run", "its device", Order.PLAIN, "R_RUN when it was executed last")
E_EXECUTIONS = END.u32(24, "executions", "its device", Order.PLAIN, "in that run")
ALWAYS = 0xFFFFFFFF

MOST_PAIRS = 1 << 16
DIRECTORY_BYTES = 8 * MOST_PAIRS
DIRECTORY = Area("directory of channels", "one a host", DIRECTORY_BYTES)
D_PAIRS = DIRECTORY.u64(
    0, "pairs", HOST_PROCESS, Order.PLAIN, "offsets of the pairs' states by number", count=MOST_PAIRS
)
DIRECTORY_KEY = "channels"

RING = 8  # transfers that may be in flight in a pair before a send waits
MOST_LEAVES = 64  # of a value that is copied from place to place

SLOT = Area("slot of a channel", "RING a pair, behind its words; the payload follows")
W_SENT = SLOT.u32(0, "sent", _SOURCE, Order.RELEASE, "the message is posted", futex=True)
W_SENT_SLEEPERS = SLOT.u32(4, "sent sleepers", _TARGET, Order.UPDATED, "about to sleep on `sent`")
W_TAKEN = SLOT.u32(
    64, "taken", _TARGET, Order.RELEASE, "the value has arrived and the slot may be used again", futex=True
)
W_TAKEN_SLEEPERS = SLOT.u32(68, "taken sleepers", _SOURCE, Order.UPDATED, "about to sleep on `taken`")
W_MOVED = SLOT.u32(128, "moved", _MOVER, Order.RELEASE, "a rendezvous message was copied", futex=True)
W_MOVED_SLEEPERS = SLOT.u32(132, "moved sleepers", "the other side", Order.UPDATED, "about to sleep on `moved`")
W_CLAIM = SLOT.u32(192, "claim", "source and target", Order.UPDATED, "exchanged; the finder of an older one copies")
M_SIGNATURE = SLOT.u64(256, "signature", _SOURCE, Order.PLAIN, "of the value's type")
M_SITE = SLOT.u32(264, "site", _SOURCE, Order.PLAIN, "of the send")
M_DEVICE = SLOT.u32(268, "device", _SOURCE, Order.PLAIN, "the source")
M_KIND = SLOT.u32(
    272, "kind", _SOURCE, Order.PLAIN, "how the message travels: EAGER, RENDEZVOUS, BOUNCE_BUFFER, RECEIVE_BUFFER"
)
M_COPIED_TO = SLOT.u32(
    276,
    "copied to",
    _SOURCE,
    Order.PLAIN,
    "RECEIVE_BUFFER or BOUNCE_BUFFER, once a message RENDEZVOUS was moved by its source",
)
L_NUMBER = SLOT.u32(320, "receive buffer", _TARGET, Order.PLAIN, "the transfer whose receive buffer is posted here")
L_SIGNATURE = SLOT.u64(328, "receive buffer signature", _TARGET, Order.PLAIN, "of the value's type")
L_SITE = SLOT.u32(336, "receive buffer site", _TARGET, Order.PLAIN, "of the recv")
L_DEVICE = SLOT.u32(340, "receive buffer device", _TARGET, Order.PLAIN, "the target")
M_OFFSETS = SLOT.u64(
    384, "offsets", _SOURCE, Order.PLAIN, "the value's leaves in the source's memory", count=MOST_LEAVES
)
L_OFFSETS = SLOT.u64(
    M_OFFSETS + 512,
    "receive buffer offsets",
    _TARGET,
    Order.PLAIN,
    "where they go in the target's memory",
    count=MOST_LEAVES,
)
M_PAYLOAD = SLOT.size

PAIR = Area("pair of a channel", "one for each (channel, stream, source, target)")
C_SOURCE = PAIR.u32(0, "source", HOST_PROCESS, Order.PLAIN, "device")
C_TARGET = PAIR.u32(4, "target", HOST_PROCESS, Order.PLAIN, "device")
C_SLOT_BYTES = PAIR.u64(8, "slot bytes", HOST_PROCESS, Order.PLAIN, "from slot to slot")
C_BOUNCE_BUFFERS = PAIR.u64(
    16,
    "bounce buffers",
    HOST_PROCESS,
    Order.PLAIN,
    "offset of RING places for values that need one, in a device's memory",
)
C_BOUNCE_BUFFER_BYTES = PAIR.u64(24, "bounce buffer bytes", HOST_PROCESS, Order.PLAIN, "from place to place")
C_BOUNCE_BUFFER_DEVICE = PAIR.u32(
    32,
    "bounce buffer device",
    HOST_PROCESS,
    Order.PLAIN,
    "the device with the memory: the source, or the target if the source is on another host",
)
C_SENDS = PAIR.u32(64, "sends", _SOURCE, Order.PLAIN, "sends executed")
PAIR.part(C_SENDS + COUNTED, "counts of sends", COUNTS, "when the call began")
C_RECVS = PAIR.u32(128, "recvs", _TARGET, Order.RELEASE, "recvs executed", futex=True)
C_SOURCE_SLEEPS = PAIR.u32(132, "source sleeps", _SOURCE, Order.UPDATED, "about to sleep on `recvs`")
PAIR.part(C_RECVS + COUNTED, "counts of recvs", COUNTS, "when the call began")
C_SLOTS = PAIR.part(192, "slots", SLOT, "transfer q in slot q % RING; payloads make them larger", count=0)

EAGER, RENDEZVOUS, BOUNCE_BUFFER, RECEIVE_BUFFER = 0, 1, 2, 3

EAGER_VALUE_BYTES = 32768  # values up to here travel in their message


def packed(payload: Shape) -> tuple[tuple[int, ...], int]:
    """The offsets of a value's leaves in a message or a bounce buffer, each aligned; the bytes of all."""
    places, end = [], 0
    for leaf in payload.leaves():
        places.append(end)
        end += (byte_size(leaf) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    return tuple(places), end


def byte_size(leaf: Shape) -> int:
    """Bytes of a leaf in memory; a token has none."""
    return leaf.byte_size if leaf.is_array else 0


def may_be_zero_copy(payload: Shape) -> bool:
    """Whether values of a type are copied from place to place if both places stay where they are."""
    places, size = packed(payload)
    return size > EAGER_VALUE_BYTES and len(places) <= MOST_LEAVES


def slot_bytes(payload: Shape) -> int:
    """Bytes of a slot for values of a type."""
    size = packed(payload)[1]
    return M_PAYLOAD + (size if size <= EAGER_VALUE_BYTES else 0)


def slot_of(transfer: int, slot: int) -> int:
    """Offset in a pair's state of a transfer's slot. transfer: from 0.  slot: bytes of a slot."""
    return C_SLOTS + transfer % RING * slot


def pair_bytes(slot: int) -> int:
    """Bytes of a pair's state with slots of that size."""
    return C_SLOTS + RING * slot
