"""Shared state of a permute: one pair for each member of the group, at its position as the target: counters, then RING
messages; message r is the device's r-th round. It is in the control block, zeroed before a run.

A message is a slot of a pair's ring, used for the messages slot, slot + RING, ..
"""

from __future__ import annotations

from distxla.collectives.protocols.layout import Area, Order
from distxla.collectives.protocols.rounds import COUNTED, COUNTS, POST, S_DEVICE, S_SIGNATURE, S_SITE, SLOT_BYTES

RING = 4  # messages that a source may be ahead, a power of two
MAILBOX_BYTES = 32768
_SOURCE, _TARGET, _BOTH = "source", "target", "source and target"

_PAYLOAD = 192 + SLOT_BYTES
MESSAGE_BYTES = _PAYLOAD + MAILBOX_BYTES
MESSAGE = Area("message of a permute", "RING a pair; its head is as that of a post", MESSAGE_BYTES)
M_SIGNATURE, M_SITE, M_DEVICE = (MESSAGE.place(word, 0, _SOURCE) for word in (S_SIGNATURE, S_SITE, S_DEVICE))
M_ZERO_COPY = MESSAGE.u32(
    16,
    "zero-copy",
    _SOURCE,
    Order.PLAIN,
    "the large message is copied out of the source's operand, which must stay until it is taken",
)
M_READY = MESSAGE.u32(
    20,
    "ready to receive",
    _TARGET,
    Order.FENCED,
    "messages for which the target has posted where it will have them, without waiting",
)
M_POSTED = MESSAGE.u32(24, "posted", _SOURCE, Order.RELEASE, "messages that were posted in this slot", futex=True)
M_TARGET_SLEEPS = MESSAGE.u32(28, "target sleeps", _TARGET, Order.UPDATED, "it is about to sleep on `posted`")
M_COPIER = MESSAGE.u32(
    32,
    "copier",
    _BOTH,
    Order.UPDATED,
    "of small messages that were asked for, those that one side has begun to copy",
)
M_BYTES = MESSAGE.u64(40, "bytes", _SOURCE, Order.PLAIN, "of a small message, for a proxy")
M_LEAVES = MESSAGE.u32(
    48,
    "leaves",
    _SOURCE,
    Order.PLAIN,
    "of a large message, for a proxy, which finds their bytes behind their offsets; 0 for a small one",
)
M_TAKEN = MESSAGE.u32(
    64, "taken", "the copier", Order.RELEASE, "messages that were taken out of this slot, or delivered", futex=True
)
M_TAKEN_SLEEPS = MESSAGE.u32(68, "taken sleeps", _BOTH, Order.UPDATED, "sides that are about to sleep on `taken`")
M_CLAIM = MESSAGE.u32(
    128,
    "claim",
    _BOTH,
    Order.UPDATED,
    "raised by both sides of a large message; the side that finds it odd is second and copies",
)
M_TARGET_POST = MESSAGE.part(192, "target post", POST, "the post of the target of a large message")
M_PAYLOAD = MESSAGE.u64(
    _PAYLOAD,
    "payload",
    _SOURCE,
    Order.PLAIN,
    "small: the operands, 64-byte aligned; large: offsets of the operand leaves",
    count=MAILBOX_BYTES // 8,
)

PAIR = Area("pair of a permute", "one a target")
P_SENT = PAIR.u64(
    0, "sent", _SOURCE, Order.PLAIN, "rounds that the source has begun; used by sources that are no target"
)
PAIR.part(P_SENT + COUNTED, "counts of sent", COUNTS, "when the call began")
P_READY = PAIR.u64(64, "ready to receive", _TARGET, Order.PLAIN, "rounds that the target has begun")
PAIR.part(P_READY + COUNTED, "counts of ready to receive", COUNTS, "when the call began")
P_RING = PAIR.part(128, "ring", MESSAGE, "message r in slot r % RING", count=RING)
PAIR_BYTES = PAIR.size


def message_of(position: int, slot: int) -> int:
    """Offset in a permute's state of a slot in the ring of the pair whose target is at this position."""
    return position * PAIR_BYTES + P_RING + slot * MESSAGE_BYTES


def round_of(use: int, slot: int) -> int:
    """The round, from 1, whose message is in the use, from 1, of a slot in the ring."""
    return (use - 1) * RING + slot + 1


def pair_at(place: int) -> int:
    """Offset in a permute's state of the pair that an offset is in."""
    return place // PAIR_BYTES * PAIR_BYTES


def message_at(place: int) -> int | None:
    """Offset in a permute's state of the message that an offset is in; None for a word of the pair itself."""
    ring = pair_at(place) + P_RING
    return None if place < ring else place - (place - ring) % MESSAGE_BYTES


def pairs_bytes(members: int) -> int:
    """State of a group whose members send to one another in pairs."""
    return members * PAIR_BYTES
