"""The proxy's end of the queue in the control block (collectives/protocols/proxy_queue.py)."""

from __future__ import annotations

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import proxy_queue
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.targets.registry import sleep_on, wake_all


class Queue:
    """The ring in which devices enqueue events. Made before they run, since it sets it up; only its owner takes."""

    def __init__(self, block: ControlBlock) -> None:
        self._block = block
        self._address = block.address + control_words.H_PROXY_POSTED
        offset = (
            (block.segment.size - proxy_queue.RING_BYTES) // control_words.HEADER_BYTES * control_words.HEADER_BYTES
        )
        self._ring = offset
        self._next = block.load(control_words.H_PROXY_TICKETS)
        block.store(control_words.H_PROXY_RING, offset)

    def take(self, seconds: float) -> tuple[int, int, int] | None:
        """(offset in the control block, Event, its number) of the next entry; None if none came within `seconds`."""
        while True:
            posted = self._block.load(control_words.H_PROXY_POSTED)
            at = self._ring + self._next % proxy_queue.ENTRIES * 8
            entry = self._block.load(proxy_queue.Q_ENTRY, at)
            if entry:
                self._block.store(proxy_queue.Q_ENTRY, 0, at)
                self._next = (self._next + 1) & 0xFFFFFFFF
                return proxy_queue.parts_of(entry)
            if seconds <= 0:
                return None
            sleep_on(self._address, posted, seconds)
            seconds = 0.0 if self._block.load(control_words.H_PROXY_POSTED) == posted else seconds

    def wake(self) -> None:
        """Let a `take` that sleeps in another thread return."""
        wake_all(self._address)
