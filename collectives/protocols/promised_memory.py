"""What the heaps of a host's device memories promise to their blocks, where heaps of several processes share the host.

A block that is in use may get pages at any time, and a process that touches a page that the kernel can't provide is
killed. So a heap that grows writes what it promises, and then adds up what all of them do: of two that grow at once,
one at least sees the other.
"""

from __future__ import annotations

from distxla.collectives.protocols.layout import Area, Order

PROMISE = Area("promise of a heap", "one a heap of the host's device memories, one behind the other")
M_PROMISED = PROMISE.u32(
    0, "promised", "the heap's process", Order.FENCED, "MiB that have pages in the memories, or may get them"
)
UNIT = 1 << 20

__all__ = ["M_PROMISED", "PROMISE", "UNIT"]
