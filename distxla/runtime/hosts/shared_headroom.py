"""Memory of a host that heaps of several processes promise: none of it twice (protocols/promised_memory.py).

The process that makes the memories has a heap in them, and one in the common memory; each further process has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from distxla.collectives.protocols import promised_memory as words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import OutOfMemoryError
from distxla.machine.byte_counts import amount
from distxla.machine.memory_limits import Limit
from distxla.machine.segments import Segment
from distxla.runtime.hosts.budget import HostHeadroom, wanted

DEVICES_HEAP, COMMON_HEAP, _FIRST_PROCESS = range(3)  # numbers of heaps


def heap_of(process: int) -> int:
    """The number of the heap of a further process, by its index."""
    return _FIRST_PROCESS + process


def held_part(segments: Iterable[Segment], part: range) -> int:
    """Bytes that have pages in a part of each of the segments."""
    return sum(segment.resident_part(part.start, part.stop) for segment in segments)


class Promises:
    """The promises of all heaps: room for one of each device. place: offset in the control block.

    The word of a process that has ended stays as it is: so do the pages, which calls under way may still use.
    """

    def __init__(self, control: ControlBlock, place: int) -> None:
        self._control = control
        self.place = place
        self.count = _count(control)

    @staticmethod
    def carved(control: ControlBlock) -> Promises:
        """New ones."""
        return Promises(control, control.carve(_count(control) * words.PROMISE.size))

    def load(self, number: int) -> int:
        """Bytes that a heap promises."""
        return self._control.load(words.M_PROMISED, self._at(number)) * words.UNIT

    def store(self, number: int, promised: int) -> None:
        self._control.store(words.M_PROMISED, -(-promised // words.UNIT), self._at(number))

    def total(self) -> int:
        return sum(map(self.load, range(self.count)))

    def _at(self, number: int) -> int:
        return self.place + number * words.PROMISE.size


def _count(control: ControlBlock) -> int:
    return _FIRST_PROCESS + control.devices


class SharedHeadroom(HostHeadroom):
    """The free memory of the host for one of the heaps.

    number: of the heap.  devices: of it.  own: bytes with pages in its part of the memories.  free: bytes for all that
    all memories of the host hold and can still take.
    """

    def __init__(
        self,
        promises: Promises,
        number: int,
        devices: range,
        own: Callable[[], int],
        free: Callable[[], Limit],
    ) -> None:
        super().__init__(devices, own, free)
        self._promises = promises
        self._number = number

    def require(self, promised: int, growth: int, devices: Sequence[int]) -> None:
        before = self._promises.load(self._number)
        try:
            self._promises.store(self._number, promised)
            free = self._free()  # reads files in between: the fence between the store and the loads
            if (total := self._promises.total()) > free.bytes:
                had = total - promised + before
                raise OutOfMemoryError(
                    f"{wanted(growth, devices)}: this host has {amount(max(0, free.bytes - had))} left "
                    f"({free.source}), and all processes' arrays have or may take {amount(had)}"
                )
        except BaseException:
            self._promises.store(self._number, before)
            raise

    def promise(self, promised: int) -> None:
        self._promises.store(self._number, promised)


__all__ = ["COMMON_HEAP", "DEVICES_HEAP", "Promises", "SharedHeadroom", "heap_of", "held_part"]
