"""The control block of a host as Python sees it: its words, and space for the state that programs share."""

from __future__ import annotations

import os

from distxla.collectives.protocols import control_block as control
from distxla.collectives.protocols.proxy_queue import RING_BYTES
from distxla.errors import ClusterError, OutOfMemoryError
from distxla.machine.heap import Block, Heap
from distxla.machine.segments import Segment

CONTROL_BYTES = 1 << 30


class ControlBlock:
    """The control block's words, and space carved out of its end. Layout: collectives/protocols/control_block.py."""

    def __init__(self, segment: Segment, devices: int) -> None:
        self.segment = segment
        self.devices = devices
        self.view = segment.bytes.data
        self.words = self.view.cast("I")
        self.longs = self.view.cast("Q")
        fixed = control.fixed_bytes(devices)
        # its end is for the queue from devices to the proxy
        self._heap = Heap(segment.size - RING_BYTES - fixed, (), begin=fixed)
        self._kept: list[Block] = []

    @staticmethod
    def create(devices: int, here: int | None = None) -> ControlBlock:
        """A new one for a run of `devices`, of which `here` live on this host: all by default."""
        block = ControlBlock(Segment.create("distxla-control", CONTROL_BYTES), devices)
        block.longs[control.H_MAGIC // 8] = control.MAGIC
        block.words[control.H_VERSION // 4] = control.VERSION
        block.words[control.H_DEVICES // 4] = devices
        block.words[control.H_HERE // 4] = devices if here is None else here
        block.words[control.H_CORES // 4] = len(os.sched_getaffinity(0))
        return block

    @staticmethod
    def open(pid: int, descriptor: int, devices: int) -> ControlBlock:
        """The driver's control block in a replica; ClusterError where its header is not of this version."""
        block = ControlBlock(Segment.open(pid, descriptor, CONTROL_BYTES), devices)
        found = (
            block.longs[control.H_MAGIC // 8],
            block.words[control.H_VERSION // 4],
            block.words[control.H_DEVICES // 4],
        )
        if found != (control.MAGIC, control.VERSION, devices):
            raise ClusterError(f"control block of another version of distxla: header {found}")
        return block

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

    def record(self, device: int, field: int) -> int:
        """A u32 field of a device's record."""
        return self.words[(control.record_offset(device) + field) // 4]

    def record_long(self, device: int, field: int) -> int:
        """A u64 field of a device's record."""
        return self.longs[(control.record_offset(device) + field) // 8]

    def close(self) -> None:
        for view in (self.words, self.longs, self.view):
            view.release()
        self.segment.close()
