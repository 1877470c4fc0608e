"""The control block of a host as Python sees it: its words, and space for the state that programs share."""

from __future__ import annotations

import os

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.layout import Word
from distxla.collectives.protocols.proxy_queue import RING_BYTES
from distxla.collectives.transports.shared_words import SharedWords
from distxla.errors import ClusterError, OutOfMemoryError
from distxla.machine.heap import Block, Heap
from distxla.machine.segments import Segment

CONTROL_BYTES = 1 << 30


class ControlBlock(SharedWords):
    """The control block's words, and space carved out of its end. Layout: collectives/protocols/control_block.py."""

    def __init__(self, segment: Segment, devices: int) -> None:
        super().__init__(segment.bytes.data)
        self.segment = segment
        self.devices = devices
        fixed = control_words.fixed_bytes(devices)
        # its end is for the queue from devices to the proxy
        self._heap = Heap(segment.size - RING_BYTES - fixed, (), begin=fixed)
        self._kept: list[Block] = []

    @staticmethod
    def create(devices: int, here: int | None = None) -> ControlBlock:
        """A new one for a run of `devices`, of which `here` live on this host: all by default."""
        block = ControlBlock(Segment.create("distxla-control", CONTROL_BYTES), devices)
        block.store(control_words.H_MAGIC, control_words.MAGIC)
        block.store(control_words.H_VERSION, control_words.VERSION)
        block.store(control_words.H_DEVICES, devices)
        block.store(control_words.H_HERE, devices if here is None else here)
        block.store(control_words.H_CORES, len(os.sched_getaffinity(0)))
        return block

    @staticmethod
    def open(pid: int, descriptor: int, devices: int) -> ControlBlock:
        """The driver's control block in a replica; ClusterError where its header is not of this version."""
        block = ControlBlock(Segment.open(pid, descriptor, CONTROL_BYTES), devices)
        found = tuple(
            block.load(word) for word in (control_words.H_MAGIC, control_words.H_VERSION, control_words.H_DEVICES)
        )
        if found != (control_words.MAGIC, control_words.VERSION, devices):
            raise ClusterError(f"control block of another version of distxla: header {found}")
        return block

    def carve_header(self) -> int:
        """Offset of a header for the calls of a slice of this host's devices."""
        offset = self.carve(control_words.HEADER_BYTES)
        for word in (control_words.H_CORES, control_words.H_HERE):
            self.store(word, self.load(word), offset)
        return offset

    def carve(self, size: int) -> int:
        """Offset of `size` zeroed bytes, 64-byte aligned, for the cluster's whole life. Thread-safe."""
        block = self.allocate(size)
        self._kept.append(block)
        return block.offset

    def allocate(self, size: int) -> Block:
        """`size` zeroed bytes, 64-byte aligned, until the block is freed. Thread-safe. Zero them before freeing them.

        OutOfMemoryError where it is full.
        """
        try:
            return self._heap.allocate(size)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"the control block, {self.segment.size >> 20} MiB, is full: it holds what the groups and channels of "
                "all loaded programs share; delete executables that are not needed any more"
            ) from error

    @property
    def used(self) -> int:
        """Bytes that are carved out or allocated."""
        return self._heap.used

    def record(self, device: int, field: Word) -> int:
        """A field of a device's record."""
        return self.load(field, control_words.record_offset(device))

    def close(self) -> None:
        super().close()
        self.segment.close()
