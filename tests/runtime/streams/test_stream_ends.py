"""The host's ends of streams, with a memory of this process: interrupts at any place."""

from __future__ import annotations

import sys
from collections import deque
from itertools import count

import numpy as np
import pytest

from distxla.collectives.protocols import stream as streams
from distxla.machine.heap import Block
from distxla.runtime.streams import stream_ends
from distxla.runtime.streams.stream_ends import Bytes, DeviceToHost, HostToDevice, PackedItem
from tests.interrupted import interrupted_everywhere

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")

SIZE = streams.SLOTS_BYTES + streams.AREA_BYTES


class Memory:
    """A device's memory, and the words of a stream."""

    def __init__(self) -> None:
        self.bytes = np.zeros(4 * SIZE, np.uint8)
        self.words: dict[int, int] = {}

    def word(self, offset: int) -> int:
        return self.words.get(offset, 0)

    def set_word(self, offset: int, value: int) -> None:
        self.words[offset] = value

    def wait(self, offset: int, value: int, seconds: float) -> None: ...

    def wake(self, offset: int) -> None: ...

    def read(self, offset: int, size: int) -> Bytes:
        return self.bytes[offset : offset + size]

    def write(self, offset: int, data: Bytes) -> None:
        self.bytes[offset : offset + data.size] = data


def item(value: int, size: int = 8) -> PackedItem:
    return PackedItem([np.full(size, value, np.uint8)], [0], size, 1)


class ToDevice:
    def __init__(self) -> None:
        begins = count(SIZE, 1 << 14)
        self.memory = Memory()
        self.end = HostToDevice(
            self.memory, 0, Block(deque(), 0, SIZE), lambda size: Block(deque(), next(begins), size)
        )
        for value in range(1, 5):
            assert self.end.put(item(value), None, lambda: None)

    def values(self) -> list[int]:
        """What the device would take."""
        posted = self.memory.word(streams.T_POSTED) >> 1
        taken = self.memory.word(streams.T_TAKEN) >> 1
        slots = [self.memory.read(self.end.slot_offset(number), streams.SLOT_BYTES) for number in range(taken, posted)]
        places = [stream_ends.SLOT_WORDS.unpack_from(bytes(slot))[:2] for slot in slots]
        for place, size in places:
            assert len(set(self.memory.read(place, size))) == 1, "an item is whole"
        return [int(self.memory.read(place, 1)[0]) for place, _ in places]

    def take_out_of_order(self, number: int) -> None:
        slot = self.memory.read(self.end.slot_offset(number), streams.SLOT_BYTES)
        words = stream_ends.SLOT_WORDS.unpack_from(bytes(slot))
        packed = stream_ends.SLOT_WORDS.pack(*words[:-1], 1)
        slot[: len(packed)] = np.frombuffer(packed, np.uint8)
        self.memory.set_word(streams.T_ISSUED, 8)


def test_an_interrupted_put_is_whole_or_not_there() -> None:
    for place, found in interrupted_everywhere(
        [stream_ends], ToDevice, lambda found: found.end.put(item(5), None, lambda: None)
    ):
        assert found.values() in ([1, 2, 3, 4], [1, 2, 3, 4, 5]), place
        was_put = found.end.posted == 5
        found.end.put(item(6), None, lambda: None)
        assert found.values() == [1, 2, 3, 4, *([5] if was_put else []), 6]


def test_an_interrupted_renumbering_is_ended_by_the_next() -> None:
    def prepared() -> ToDevice:
        found = ToDevice()
        found.take_out_of_order(1)
        found.take_out_of_order(2)
        return found

    for place, found in interrupted_everywhere([stream_ends], prepared, lambda found: found.end.settle()):
        found.end.put(item(7), None, lambda: None)
        found.end.settle()
        assert found.values() == [1, 4, 7], place
        assert found.memory.word(streams.T_ISSUED) == found.memory.word(streams.T_TAKEN)


class FromDevice:
    def __init__(self) -> None:
        self.memory = Memory()
        self.end = DeviceToHost(self.memory, 0, Block(deque(), 0, SIZE))
        self.got: list[int] = []
        for number in range(4):
            place = streams.SLOTS_BYTES + 64 * number
            self.memory.write(place, np.full(8, number + 1, np.uint8))
            slot = stream_ends.SLOT_WORDS.pack(place, 8, 1, 0, 0, 0)
            self.memory.write(number * streams.SLOT_BYTES, np.frombuffer(slot, np.uint8))
        self.memory.set_word(streams.T_POSTED, 8)

    def get(self) -> None:
        found = self.end.get(0.0, lambda: None, lambda posted: int(posted.payload[0]))
        self.got += [] if found is None else [found]

    def get_all(self) -> None:
        for _ in range(4):
            self.get()


def test_the_item_of_an_interrupted_get_is_given_by_the_next() -> None:
    for place, found in interrupted_everywhere([stream_ends], FromDevice, FromDevice.get, returns=False):
        found.get_all()
        assert found.got == [1, 2, 3, 4], place
        assert found.end.pending == 0
        assert found.memory.word(streams.T_TAKEN) == 8


def test_an_interrupted_move_keeps_the_block_or_has_the_other() -> None:
    for place, found in interrupted_everywhere(
        [stream_ends], FromDevice, lambda found: found.end.move(Block(deque(), SIZE, 2 * SIZE))
    ):
        assert found.memory.word(streams.T_BLOCK) == found.end.block.offset, place
        assert found.memory.word(streams.T_CAPACITY) == found.end.capacity
        found.get_all()
        assert found.got == [1, 2, 3, 4]


def test_a_sleep_that_is_interrupted_is_over() -> None:
    for _, found in interrupted_everywhere(
        [stream_ends], FromDevice, lambda found: found.end.sleep(0, 0, None, lambda: None)
    ):
        found.end.sleep(0, 0, None, lambda: None)
        assert found.memory.word(streams.T_HOST_SLEEPS) == 0
