"""How devices hand work to the proxy of their host: a ring of u64 entries at the end of the control block.

A device takes a ticket, stores its entry in the ticket's place (modulo ENTRIES), raises H_PROXY_POSTED and wakes the
proxy. An entry's low half is the offset in the control block of the subject, a multiple of 64, plus the kind of the
event; the upper half is a number that belongs to it. The proxy empties places in the order of the tickets, by storing
0.

A device has one synchronous instruction in flight and a bounded number of asynchronous ones, so the ring is never full:
MOST_DEVICES devices could each leave 16 entries.

The native code that a proxy needs (transports/shared_memory/proxy_reduce.py) is linked with the loops of a call:

    void distxla_reduce_run(ptr targets, i64 target_count, ptr sources, i64 source_count, i64 bytes, ptr reduction,
                          i64 element, i32 streamed)
        Reduces `bytes` bytes of the sources, left to right, with a program's function for elements of `element` bytes,
        and writes them to all targets, past the caches where `streamed`. One source is copied; `reduction` may be null
        then.
        targets, sources: tables of addresses. A target may be a source.
"""

from __future__ import annotations

from enum import IntEnum

from distxla.collectives.protocols.control_block import MOST_DEVICES
from distxla.collectives.protocols.layout import Area, Order

ENTRIES = 16 * MOST_DEVICES
RING_BYTES = 8 * ENTRIES
EVENT_MASK = 63  # of an entry: its event; the rest of the low half is the subject's offset
NUMBER_SHIFT = 32  # of an entry's number
QUEUE = Area("ring of a proxy", "one a host, at the end of the control block", RING_BYTES)
Q_ENTRY = QUEUE.u64(0, "entries", "devices; proxy empties", Order.RELEASE, "one a ticket; 0: empty", count=ENTRIES)
REDUCE_RUN = "distxla_reduce_run"


def parts_of(entry: int) -> tuple[int, int, int]:
    """(offset in the control block, kind of the event, its number) of an entry."""
    place = entry & (1 << NUMBER_SHIFT) - 1
    return place & ~EVENT_MASK, place & EVENT_MASK, entry >> NUMBER_SHIFT


class ProxyEvent(IntEnum):
    """The kind of an event at an entry's offset."""

    ROUND = 0  # all local members of a group have reached a round: the offset is its area's
    # of a pair of a permute, whose other end is on another host: the offset is a message's, the number that of its use
    POSTED = 1  # the source has posted it
    READY = 2  # the target has posted where a large one goes
    TAKEN = 3  # the target has taken it
    # of a channel's pair: the offset is the pair's, the number the transfer's, from 1
    SENT = 4  # a send has posted its value
    RECEIVING = 5  # a recv was executed
    RECEIVED = 6  # a recv-done has taken the value
