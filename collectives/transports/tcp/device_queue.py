"""The proxy's end of the queue in the control block (collectives/protocols/proxy_queue.py)."""

from __future__ import annotations

from distxla.collectives.protocols import control_block as control
from distxla.collectives.protocols import proxy_queue
from distxla.collectives.transports.control_block import ControlBlock
from distxla.collectives.transports.shared_words import SharedWords
from distxla.targets.registry import sleep_on, wake_all


class Queue:
    """The ring in which devices enqueue events. Made before they run, since it sets it up; only its owner takes."""

    def __init__(self, block: ControlBlock, shared: SharedWords) -> None:
        self._shared, self._mapped = shared, block.segment.bytes  # mapped as long as this is used
        self._address = block.segment.address + control.H_PROXY_POSTED
        offset = (block.segment.size - proxy_queue.RING_BYTES) // control.HEADER_BYTES * control.HEADER_BYTES
        self._ring = block.segment.address + offset
        self._next = block.words[control.H_PROXY_TICKETS // 4]
        block.longs[control.H_PROXY_RING // 8] = offset

    def take(self, seconds: float) -> tuple[int, int, int] | None:
        """(offset in the control block, Event, its number) of the next entry; None if none came within `seconds`."""
        while True:
            posted = self._shared.read(self._address)
            at = self._ring + self._next % proxy_queue.ENTRIES * 8
            entry = self._shared.read_long(at)
            if entry:
                self._shared.publish_long(at, 0)
                self._next = (self._next + 1) & 0xFFFFFFFF
                place = entry & 0xFFFFFFFF
                return place & ~proxy_queue.EVENT_MASK, place & proxy_queue.EVENT_MASK, entry >> 32
            if seconds <= 0:
                return None
            sleep_on(self._address, posted, seconds)
            seconds = 0.0 if self._shared.read(self._address) == posted else seconds

    def wake(self) -> None:
        """Let a `take` that sleeps in another thread return."""
        wake_all(self._address)
