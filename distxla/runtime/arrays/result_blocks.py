"""The memory of a call's results, allocated before the call runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from distxla.errors import OutOfMemoryError
from distxla.ir.shape import Shape
from distxla.machine.heap import Block, Heap
from distxla.machine.mappings import PAGE
from distxla.runtime.arrays.call_queue import CallQueue
from distxla.runtime.arrays.executable import aligned

BlockPlace = tuple[Block, int]  # and the offset in the devices' memories
_NOTHING: Final[Mapping[int, BlockPlace]] = MappingProxyType({})


class AllocatingCluster(Protocol):
    """The parts of a cluster that have to do with memory."""

    heap: Heap

    @property
    def queue(self) -> CallQueue:
        """The calls under way."""


class ResultBlocks:
    """Which block each result of a program lies in: results of a page and more have blocks of their own, so that the
    memory of each is free by itself; the others share one."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes
        self._layouts: dict[frozenset[int], BlockLayout] = {}

    def allocate(
        self, cluster: AllocatingCluster, devices: Sequence[int], given: Mapping[int, BlockPlace] = _NOTHING
    ) -> tuple[list[BlockPlace], int]:
        """Where each result goes, and the bytes that were allocated on each device.

        given: places of results that are known.  Blocks while too many calls are under way. Where there is not enough
        memory it waits for these, which give some back, and tries once more; OutOfMemoryError.
        """
        layout = self.layout(given)
        cluster.queue.await_room(layout.bytes)
        try:
            blocks = [cluster.heap.allocate(size, devices) for size in layout.sizes]
        except OutOfMemoryError:
            cluster.queue.drain()
            blocks = [cluster.heap.allocate(size, devices) for size in layout.sizes]
        places = [(blocks[number], blocks[number].offset + place) for number, place in layout.places]
        for k in sorted(given):
            places.insert(k, given[k])
        return places, layout.bytes

    def layout(self, given: Collection[int] = ()) -> BlockLayout:
        """The blocks of all results but those that are `given`."""
        layout = self._layouts.get(key := frozenset(given))
        if layout is None:
            layout = self._layouts[key] = BlockLayout(self._shapes, key)
        return layout


class BlockLayout:
    """sizes: of the blocks.  places: of each result but those that are `given`, the number of its block, and where in
    it.  bytes: of all blocks."""

    def __init__(self, shapes: Sequence[Shape], given: frozenset[int]) -> None:
        sizes = [shape.byte_size for k, shape in enumerate(shapes) if k not in given]
        large = [size for size in sizes if size >= PAGE]
        self.places: list[tuple[int, int]] = []
        small = count = 0
        for size in sizes:
            self.places.append((count, 0) if size >= PAGE else (len(large), small))
            count += size >= PAGE
            small += 0 if size >= PAGE else aligned(size)
        self.sizes = [*large, small] if small else large
        self.bytes = sum(self.sizes)


__all__ = ["AllocatingCluster", "BlockLayout", "BlockPlace", "ResultBlocks"]
