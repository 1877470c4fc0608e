"""Blocks of the GPU's memory that other devices of the host may use, and theirs in this process.

    device 0 allocates block 3 and publishes it          row 3 of its table: process, address, handle
    device 0 posts (3, offset) for an all-reduce
    device 1 finds (3, offset), opens block 3 of device 0, and keeps the address for later calls

A block that another device has opened is not freed before the process ends: the driver forbids it while others have it
open. Once its program is closed, it serves the next program that it suffices for.
"""

from __future__ import annotations

import os
import threading
from struct import Struct

from distxla.collectives.protocols import exported_memory as words
from distxla.collectives.protocols.control_block import exported_offset
from distxla.errors import OutOfMemoryError
from distxla.lazy_dataclass import dataclass
from distxla.machine.byte_counts import amount
from distxla.targets.nvptx.driver.driver import Context
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.placement import VARIABLE
from distxla.targets.registry import atomics

HANDLE = Struct(f"<{words.HANDLE_BYTES // 8}Q")
PAGE_BYTES = 2 << 20  # of a GPU: a block that shares one with other memory would let others open that, too
HINT = f"{VARIABLE}=host copies such data through the host's memory"
WASTE = 2  # a block serves for what needs at least this part of it


@dataclass
class ExportedBlock:
    """number: of its row in the table of the device that owns it.  is_opened: another device has opened it once."""

    number: int
    address: int
    size: int
    handle: bytes
    is_opened: bool = False

    @property
    def posted_bias(self) -> int:
        """Added to an address in the block, it gives what is posted, modulo 2^64."""
        return (self.number << words.NUMBER_SHIFT) - self.address


class ExportedTable:
    """The rows of a device in the control block of its host."""

    def __init__(self, control: int, devices: int, device: int) -> None:
        """control: the address of the control block in this process.  devices: of the whole run."""
        self._begin = control + exported_offset(devices, device, 0)
        self._atomics = atomics()

    def publish(self, block: ExportedBlock) -> None:
        at = self._row(block.number)
        self._atomics.publish(at + words.X_PID, os.getpid())
        self._atomics.publish_long(at + words.X_ADDRESS, block.address)
        for number, word in enumerate(HANDLE.unpack(block.handle)):
            self._atomics.publish_long(at + words.X_HANDLE + 8 * number, word)
        self._atomics.publish(at + words.X_IS_OPENED, 0)
        self._atomics.publish(at + words.X_IS_THERE, 1)

    def withdraw(self, number: int) -> None:
        """There is no such block from now on."""
        self._atomics.publish(self._row(number) + words.X_IS_THERE, 0)

    def find_to_open(self, number: int) -> tuple[int, int, bytes] | None:
        """The process that has a block, its address there, and its handle; the block counts as opened from now on.
        None if there is none."""
        at, read_long = self._row(number), self._atomics.read_long
        if not self._atomics.read(at + words.X_IS_THERE):
            return None
        self._atomics.publish(at + words.X_IS_OPENED, 1)
        handle = HANDLE.pack(*(read_long(at + words.X_HANDLE + 8 * k) for k in range(words.HANDLE_BYTES // 8)))
        return self._atomics.read(at + words.X_PID), read_long(at + words.X_ADDRESS), handle

    def is_opened(self, number: int) -> bool:
        return bool(self._atomics.read(self._row(number) + words.X_IS_OPENED))

    def _row(self, number: int) -> int:
        return self._begin + number * words.EXPORTED.size


def size_class(size: int) -> int:
    """Rounded up to whole pages and to a quarter of a power of two, so that programs that grow share blocks."""
    step = max(PAGE_BYTES, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step


def whole_pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


class ExportedBlocks:
    """Of this process on one GPU: its own blocks, and those that it has opened. Methods may be called by any thread,
    and raise DriverError."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._numbers = list(range(words.BLOCKS))
        self._idle: list[ExportedBlock] = []
        self._opened: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def allocate(self, size: int) -> ExportedBlock:
        """At least so many bytes, at a multiple of 256, uninitialised. OutOfMemoryError with what is needed, free and
        kept."""
        wanted, least = size_class(size), whole_pages(size)
        with self._lock:
            found = self._take_idle(wanted, most=WASTE * wanted)
            if found is not None:
                return found
            try:
                return self._new(wanted, least)
            except (DriverError, OutOfMemoryError) as error:
                found = self._take_idle(least, most=None)
                if found is not None:
                    return found
                if isinstance(error, OutOfMemoryError):
                    raise OutOfMemoryError(f"{error.message}{self._kept()}") from error
                raise

    def _take_idle(self, size: int, most: int | None) -> ExportedBlock | None:
        """The smallest idle block of at least `size` and at most `most` bytes."""
        fitting = [block for block in self._idle if size <= block.size and (most is None or block.size <= most)]
        if not fitting:
            return None
        block = min(fitting, key=lambda block: block.size)
        self._idle.remove(block)
        return block

    def _new(self, wanted: int, least: int) -> ExportedBlock:
        """Of `wanted` bytes, or where memory is short of `least`."""
        if not self._numbers:
            raise DriverError(f"all {words.BLOCKS} blocks of GPU memory are in use{self._kept()}")
        size = wanted if wanted <= self.context.free_bytes() else least
        address = self.context.allocate(size)
        try:
            handle = self.context.export(address)
        except DriverCallError as error:
            self.context.free(address)
            raise DriverError(
                f"{self.context.gpu} can't share memory with other processes: {error.message} ({HINT})"
            ) from error
        return ExportedBlock(self._numbers.pop(0), address, size, handle)

    def _kept(self) -> str:
        """What errors add about idle blocks."""
        if not self._idle:
            return ""
        size = amount(sum(block.size for block in self._idle))
        return f"; {len(self._idle)} of {size} in all are kept for other programs: other processes have opened them"

    def give_back(self, block: ExportedBlock, *, is_opened: bool) -> None:
        """Free a block that no device uses now, or keep it. is_opened: by another device since it was published."""
        with self._lock:
            block.is_opened = block.is_opened or is_opened
            if block.is_opened:
                self._idle.append(block)
                return
            self._numbers.append(block.number)
            self.context.free(block.address)

    def open(self, pid: int, address: int, handle: bytes) -> int:
        """The address here of a block that the process `pid` has at `address`."""
        if pid == os.getpid():
            return address
        with self._lock:
            if handle in self._opened:
                return self._opened[handle]
            try:
                return self._opened.setdefault(handle, self.context.open_peer(handle))
            except DriverCallError as error:
                raise DriverError(
                    f"{self.context.gpu} can't open memory of another device's GPU: {error.message} ({HINT})"
                ) from error


__all__ = ["ExportedBlock", "ExportedBlocks", "ExportedTable", "size_class"]
