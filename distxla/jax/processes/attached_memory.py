"""The memories of the owner's host in a JAX process, which allocates in those of its own devices."""

from __future__ import annotations

import contextlib
import os
from functools import partial

from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.jax.processes.facts import AttachedMemory
from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Heap
from distxla.machine.memory_files import held_bytes, open_descriptor, resident_bytes
from distxla.machine.memory_limits import Limit, free_memory
from distxla.machine.segments import Segment
from distxla.runtime.hosts.shared_headroom import Promises, SharedHeadroom, heap_of, held_part


@dataclass(frozen=True)
class _Part:
    """The part of a memory behind its first `begin` bytes; see heap.Pages."""

    segment: Segment
    begin: int

    def punch(self, offset: int, size: int) -> None:
        self.segment.punch(self.begin + offset, size)


class AttachedMemories:
    """The memories of this process's devices, mapped as in a replica; nothing is copied on the way to a device.

    control: the control block.  heap: of the second half of each of these memories; the owner has the first one.
    ClusterError where they can't be opened.
    """

    def __init__(self, facts: AttachedMemory, process: int, devices: range) -> None:
        owner, size = facts.owner, facts.memory_bytes
        self._mapped: dict[int, Segment] = {}
        self.control = ControlBlock.open(owner, facts.control, facts.devices)
        for device in devices:
            common = facts.common, size
            self._mapped[device] = Segment.open(owner, facts.memories[device - facts.first], size, common, keep=True)
        begin = facts.device_bytes
        pages = [_Part(segment, begin) for segment in self._mapped.values()]
        self._descriptors = [open_descriptor(owner, number, size) for number in (*facts.memories, facts.common)]
        # the owner of all devices promises what it allocates on its own host alone
        self._others = 0 if facts.is_owner_here else begin
        own = partial(held_part, self._mapped.values(), range(begin, 2 * begin))
        promises = Promises(self.control, facts.promised)
        headroom = SharedHeadroom(promises, heap_of(process), devices, own, self._free)
        self.heap = Heap(begin, pages, begin=begin, headroom=headroom)

    def memory(self, device: int) -> Segment:
        """That of a device of this process."""
        return self._mapped[device]

    def _free(self) -> Limit:
        """Bytes that the memories of all processes' devices may hold: the free memory, and what they hold; without what
        the owner of all devices holds, where that is on another host."""
        free = free_memory()
        held = sum(map(resident_bytes, self._descriptors))
        if self._others:
            held -= sum(held_bytes(one, 0, self._others) for one in self._descriptors[:-1])
            held -= resident_bytes(self._descriptors[-1])
        return Limit(free.bytes + held, free.source)

    def close(self) -> None:
        """Close the descriptors; arrays stay valid."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        for segment in self._mapped.values():
            segment.close()
        with contextlib.suppress(OSError):
            self.control.close()


__all__ = ["AttachedMemories"]
