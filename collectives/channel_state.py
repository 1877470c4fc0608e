"""Shared state of channels: layout in bytes. Lies in the control block, zeroed before a run; written by devices but
for the words that the driver configures.

    end         of each send and recv of a program, one a device
    directory   one for all devices: where the state of each pair lies, by its number
    pair        one for each (channel, stream, source, target): counters, then RING slots

A context's u32 is its transfer's ticket: the pair's number and the low half of the transfer's number within it; 0
where the device takes no part. Transfer q of a pair uses slot q % RING. Words that count transfers hold q + 1 for the
last one that they speak of, so they are compared by the sign of a difference, and nobody resets them.
"""

from __future__ import annotations

from distxla.ir.shape import Shape

ALIGNMENT = 64

# end: the first three configured
E_PAIR = 0  # u64: offset of the pair's state; 0 on a device that takes no part
E_NUMBER = 8  # u32: the pair's number, from 1
E_FIRST, E_LAST = 12, 16  # u32: executions of the instruction in a run that transfer, from 0, both inclusive
E_RUN = 20  # u32: R_RUN when it was executed last
E_EXECUTIONS = 24  # u32: in that run
END_BYTES = 64
ALWAYS = 0xFFFFFFFF

# directory
MOST_PAIRS = 1 << 16
DIRECTORY_BYTES = 8 * MOST_PAIRS  # u64 offsets by number, configured
DIRECTORY_KEY = "channels"

# pair
C_SOURCE, C_TARGET = 0, 4  # u32: devices, configured
C_SLOT_BYTES = 8  # u64: from slot to slot, configured
C_STAGING = 16  # u64: offset of RING places for values that need one, in a device's memory, configured
C_STAGED_BYTES = 24  # u64: from place to place, configured
C_STAGING_DEVICE = 32  # u32: whose memory: the source's, or on another host than its the target's, configured
C_SENDS = 64  # u32: sends executed, and N_* (state.py); the source's own
C_RECVS = 128  # u32 futex: recvs executed, and N_*, written by the target
C_SOURCE_SLEEPS = 132  # u32: the source is about to sleep on C_RECVS
C_SLOTS = 192
RING = 8  # transfers that may be under way in a pair before a send waits

# slot
W_SENT = 0  # u32 futex: the message is posted; written by the source
W_SENT_SLEEPERS = 4
W_TAKEN = 64  # u32 futex: the value has arrived and the slot may be used again; written by the target
W_TAKEN_SLEEPERS = 68
W_MOVED = 128  # u32 futex: a message that was posted in place has been copied from there, by who claimed it
W_MOVED_SLEEPERS = 132
W_CLAIM = 192  # u32: taken by who copies it
M_SIGNATURE = 256  # u64: of the value's type; then u32 site and device, as in collectives/state.py
M_SITE, M_DEVICE = 264, 268
M_KIND = 272  # u32: how the message travels
M_COPIED_TO = 276  # u32: LANDED or STAGED, once a message IN_PLACE was moved by its source
L_NUMBER = 320  # u32: the transfer whose landing place is posted here
L_SIGNATURE = 328
L_SITE, L_DEVICE = 336, 340
M_OFFSETS = 384  # u64 each: the value's leaves in the source's memory
L_OFFSETS = M_OFFSETS + 512  # u64 each: where they go in the target's memory
M_PAYLOAD = L_OFFSETS + 512
MOST_LEAVES = 64  # of a value that is copied from place to place

INLINE, IN_PLACE, STAGED, LANDED = 0, 1, 2, 3

INLINE_BYTES = 32768  # values up to here travel in their message


def packed(payload: Shape) -> tuple[tuple[int, ...], int]:
    """Where the leaves of a value lie in a message or a staging place, each aligned; the bytes of all."""
    places, end = [], 0
    for leaf in payload.leaves():
        places.append(end)
        end += (byte_size(leaf) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    return tuple(places), end


def byte_size(leaf: Shape) -> int:
    """Bytes of a leaf in memory; a token has none."""
    return leaf.byte_size if leaf.is_array else 0


def may_be_kept(payload: Shape) -> bool:
    """Whether values of a type are copied from place to place if both places stay where they are."""
    places, size = packed(payload)
    return size > INLINE_BYTES and len(places) <= MOST_LEAVES


def slot_bytes(payload: Shape) -> int:
    """Bytes of a slot for values of a type."""
    size = packed(payload)[1]
    return M_PAYLOAD + (size if size <= INLINE_BYTES else 0)


def pair_bytes(slot: int) -> int:
    """Bytes of a pair's state with slots of that size."""
    return C_SLOTS + RING * slot
