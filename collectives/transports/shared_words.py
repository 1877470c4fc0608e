"""Shared words as Python reads and writes them: each in the order that collectives/protocols/ declares."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from struct import Struct

from distxla.collectives.protocols.layout import Order, Word
from distxla.errors import InternalError
from distxla.targets.registry import atomics
from distxla.wire.checksums import Buffer


class SharedWords:
    """The words in a piece of shared memory, by their declarations. All values are unsigned.

    `at` is where a word's area begins, in bytes from the begin of the memory.
    """

    def __init__(self, view: memoryview) -> None:
        """view: the whole memory, writable, its begin aligned to 8 bytes."""
        self.view = view
        self._memory = view.obj  # stays mapped as long as this object
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        self.size = view.nbytes
        self.atomics = atomics()
        self._read, self._read_long = self.atomics.read, self.atomics.read_long
        self._read_long_fenced = self.atomics.read_long_fenced
        self._words = view.cast("I")
        self._longs = view.cast("Q")

    def load(self, word: Word, at: int = 0) -> int:
        """A word's value; of one that is not plain with acquire order."""
        if word.is_ordered:
            return (
                self._read(self.address + at + word) if word.bits == 32 else self._read_long(self.address + at + word)
            )
        return self._words[(at + word) // 4] if word.bits == 32 else self._longs[(at + word) // 8]

    def load_in_race(self, word: Word, at: int = 0) -> int:
        """A u64 of fenced order, read after a fenced store of this side: of two sides that store one word each and then
        read the other's, one at least reads what the other has stored."""
        return self._read_long_fenced(self.address + at + word)

    def exchange(self, word: Word, expected: int, value: int, at: int = 0) -> int:
        """Set a u64 that is changed by read-modify-write if it is as expected; what it was. A full fence."""
        if word.order is not Order.UPDATED or word.bits != 64:
            raise InternalError(f"{word.area.name}: {word.name} is a {word.kind} of {word.order.value} order")
        return self.atomics.compare_exchange_long(self.address + at + word, expected, value)

    def load_at(self, place: int) -> int:
        """The u32 at an offset, whatever stands there, with acquire order: a word that devices sleep on."""
        return self._read(self.address + place)

    def fence(self) -> None:
        """All that was loaded before was loaded before what is loaded from here on, plainly too."""
        self.atomics.fence()

    def load_own(self, word: Word, at: int = 0) -> int:
        """A u32's value, plainly: of a word that only this process writes."""
        return self._words[(at + word) // 4]

    def store(self, word: Word, value: int, at: int = 0) -> None:
        """Write a word in its order. InternalError for one that may only be changed by read-modify-write."""
        if not word.is_ordered:
            self.reset(word, value, at)
        elif word.order is Order.UPDATED or (word.order is Order.FENCED and word.bits != 32):
            raise InternalError(f"{word.area.name}: {word.name}, of {word.order.value} order, is not stored by Python")
        elif word.order is Order.FENCED:
            self.atomics.publish_fenced(self.address + at + word, value)
        else:
            (self.atomics.publish if word.bits == 32 else self.atomics.publish_long)(self.address + at + word, value)

    def reset(self, word: Word, value: int, at: int = 0) -> None:
        """Write a word plainly while nobody else uses it: another word publishes it. InternalError where it is not
        declared plain or `reset`."""
        if word.is_ordered and not word.reset:
            raise InternalError(f"{word.area.name}: {word.name} is written with {word.order.value} order, not plainly")
        if word.bits == 32:
            self._words[(at + word) // 4] = value
        else:
            self._longs[(at + word) // 8] = value

    def row(self, row: Struct, first: Word, at: int = 0) -> Callable[..., None]:
        """A function that writes adjacent words plainly, as `reset` does. row: `layout.packed` of the words, of which
        `first` is the first."""
        return partial(row.pack_into, self.view, at + first)

    def copy(self, row: Struct, first: Word, at: int = 0) -> bytes:
        """A copy of adjacent plain words. row, first: as in `row`."""
        begin = at + first
        return bytes(self.view[begin : begin + row.size])

    def paste(self, row: Struct, first: Word, copied: Buffer, at: int = 0) -> None:
        """Write adjacent words plainly, as `reset` does, from what `copy` returned, here or on another host."""
        begin = at + first
        self.view[begin : begin + row.size] = copied

    def payload(self, array: Word, size: int, at: int = 0) -> memoryview:
        """The first `size` bytes of an array of plain words, to be sent or received into."""
        begin = at + array
        return self.view[begin : begin + size]

    def configure(self, place: int, value: int) -> None:
        """Write the u32 at an offset, whatever stands there, plainly: while no device runs."""
        self._words[place // 4] = value

    def close(self) -> None:
        """Let the memory go; twice is fine."""
        for view in (self._words, self._longs, self.view):
            view.release()


class CopiedWords:
    """Words in a copy of a piece of shared memory, by their declarations. begin: where the piece began."""

    def __init__(self, copy: bytes, begin: int) -> None:
        self._copy, self._begin = copy, begin

    def load(self, word: Word, at: int = 0) -> int:
        """A word's value, unsigned."""
        place = at + word - self._begin
        return int.from_bytes(self._copy[place : place + word.bits // 8], "little")
