"""The memory of a call's results, allocated before the call runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from distxla.errors import OutOfMemoryError
from distxla.ir.shape import Shape
from distxla.machine.heap import Block, Heap
from distxla.machine.pages import PAGE
from distxla.runtime.call_queue import CallQueue
from distxla.runtime.executable import aligned


class AllocatingCluster(Protocol):
    """The parts of a cluster that have to do with memory."""

    heap: Heap

    @property
    def queue(self) -> CallQueue:
        """The calls under way."""


class ResultBlocks:
    """Which block each result of a program lies in: results of a page and more have blocks of their own, so that the
    memory of each is free by itself; the others share one.

    bytes: of all, on each device.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        large = [shape.byte_size for shape in shapes if shape.byte_size >= PAGE]
        self._places: list[tuple[int, int]] = []  # of each result: the number of its block, and where in it
        small = count = 0
        for shape in shapes:
            is_large = shape.byte_size >= PAGE
            self._places.append((count, 0) if is_large else (len(large), small))
            count += is_large
            small += 0 if is_large else aligned(shape.byte_size)
        self._sizes = [*large, small] if small else large
        self.bytes = sum(self._sizes)

    def allocate(self, cluster: AllocatingCluster, devices: Sequence[int]) -> list[tuple[Block, int]]:
        """Of each result its block and its offset in the devices' memories.

        Where there is not enough memory it blocks until the calls under way have ended, which give some back, and tries
        once more; OutOfMemoryError.
        """
        cluster.queue.await_room(self.bytes)
        try:
            blocks = [cluster.heap.allocate(size, devices) for size in self._sizes]
        except OutOfMemoryError:
            cluster.queue.drain()
            blocks = [cluster.heap.allocate(size, devices) for size in self._sizes]
        return [(blocks[number], blocks[number].offset + place) for number, place in self._places]


__all__ = ["AllocatingCluster", "ResultBlocks"]
