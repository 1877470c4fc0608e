"""Memory of a host that heaps of several processes promise: none of it twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import OutOfMemoryError
from distxla.machine.heap import PUNCHED_BYTES, UNCHECKED_BYTES, Heap
from distxla.machine.memory_limits import Limit
from distxla.machine.segments import Segment
from distxla.runtime.hosts.shared_headroom import (
    COMMON_HEAP,
    DEVICES_HEAP,
    Promises,
    SharedHeadroom,
    heap_of,
    held_part,
)

MIB = 1 << 20
DEVICES = 4
FREE = 256 * MIB


@pytest.fixture
def control() -> Iterator[ControlBlock]:
    block = ControlBlock.create(DEVICES)
    yield block
    block.close()


@pytest.fixture
def promises(control: ControlBlock) -> Promises:
    return Promises.carved(control)


def headroom(promises: Promises, number: int, devices: range = range(2), own: int = 0) -> SharedHeadroom:
    limit = Limit(FREE, "this machine")
    return SharedHeadroom(promises, number, devices, lambda: own, lambda: limit)


def heap(promises: Promises, number: int, devices: range = range(2)) -> Heap:
    return Heap(1 << 40, (), headroom=headroom(promises, number, devices))


def test_a_heap_has_what_others_have_not_promised(promises: Promises) -> None:
    one, other = heap(promises, heap_of(0), range(2)), heap(promises, heap_of(1), range(2, 4))
    kept = one.allocate(100 * MIB, (0, 1))
    with pytest.raises(OutOfMemoryError) as told:
        other.allocate(50 * MIB, (2, 3))
    assert told.value.message == (
        "devices 2, 3: 50 MiB more each can't be had: this host has 56 MiB left (this machine), and all processes' "
        "arrays have or may take 200 MiB"
    )
    kept_too = other.allocate(20 * MIB, (2, 3))
    assert promises.load(heap_of(0)) == 200 * MIB
    assert promises.load(heap_of(1)) == 40 * MIB
    assert promises.total() == 240 * MIB
    assert kept.size + kept_too.size == 120 * MIB


def test_all_heaps_have_a_word_of_their_own(promises: Promises) -> None:
    numbers = [DEVICES_HEAP, COMMON_HEAP, *map(heap_of, range(DEVICES))]
    for number in numbers:
        promises.store(number, number * MIB + 1)
    assert [promises.load(number) for number in numbers] == [(number + 1) * MIB for number in numbers]
    assert promises.total() == sum(number + 1 for number in numbers) * MIB


def test_another_process_reads_the_same_words(control: ControlBlock, promises: Promises) -> None:
    promises.store(heap_of(3), MIB)
    assert Promises(control, promises.place).load(heap_of(3)) == MIB


def test_what_was_refused_is_not_promised(promises: Promises) -> None:
    room = headroom(promises, heap_of(0))
    room.require(FREE, FREE, (0,))
    with pytest.raises(OutOfMemoryError, match="device 0: 1 MiB more can't be had: this host has 0 B left"):
        room.require(FREE + MIB, MIB, (0,))
    assert promises.total() == FREE


def test_a_heap_tells_when_it_has_given_memory_back(promises: Promises) -> None:
    one, other = heap(promises, heap_of(0)), heap(promises, heap_of(1), range(2, 4))
    one.allocate(100 * MIB, (0, 1)).free()
    with pytest.raises(OutOfMemoryError):
        one.allocate(200 * MIB, (0, 1))  # it looks for idle memory first
    assert promises.load(heap_of(0)) == 0
    assert other.allocate(100 * MIB, (2, 3)).size == 100 * MIB


def test_small_heaps_are_not_counted(promises: Promises) -> None:
    heap(promises, heap_of(0)).allocate(UNCHECKED_BYTES // 2, (0, 1))
    assert promises.total() == 0


def test_pages_are_counted_in_a_part_of_a_segment() -> None:
    segment = Segment.create("test", 8 * MIB)
    try:
        assert held_part([segment], range(8 * MIB)) == 0
        segment.write(MIB, np.ones(MIB, np.uint8))
        segment.write(6 * MIB, np.ones(MIB, np.uint8))
        assert held_part([segment, segment], range(8 * MIB)) == 4 * MIB
        assert held_part([segment], range(4 * MIB)) == MIB
        assert held_part([segment], range(MIB + MIB // 2, 8 * MIB)) == MIB + MIB // 2
        assert held_part([segment], range(2 * MIB, 6 * MIB)) == 0
        segment.punch(MIB, PUNCHED_BYTES)
        assert held_part([segment], range(4 * MIB)) == 0
    finally:
        segment.close()
    assert held_part([segment], range(8 * MIB)) == 0
