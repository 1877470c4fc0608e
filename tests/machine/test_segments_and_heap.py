"""Segments, the heap and device arrays, without any replica."""

from __future__ import annotations

import gc
import itertools
import os
import random
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import ClusterError, OutOfMemoryError
from distxla.ir.element_type import BF16, F32, PRED, S4
from distxla.ir.shape import Shape
from distxla.machine import heap as heap_module
from distxla.machine.heap import Block, Heap, HeapUse
from distxla.machine.segments import Segment
from distxla.runtime.arrays.device_array import DeviceArray

SIZE = 1 << 30


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.create("test", SIZE)
    yield made
    made.close()


def test_blocks_never_overlap_and_everything_comes_back() -> None:
    heap = Heap(1 << 22, [])
    chance = random.Random(7)
    held: list[Block] = []
    for _ in range(3000):
        if held and chance.random() < 0.5:
            held.pop(chance.randrange(len(held)))
        else:
            try:
                held.append(heap.allocate(chance.choice((0, 1, 63, 64, 65, 4095, 4096, 5000, 70_000))))
            except ClusterError:
                held.pop(0)
        ranges = sorted((b.offset, b.offset + b.size) for b in held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert all(b.offset % 64 == 0 for b in held)
    held.clear()
    gc.collect()
    assert heap.used == 0
    assert heap.allocate(1 << 22).offset == 0


def test_a_loop_reuses_the_same_two_blocks() -> None:
    heap = Heap(1 << 30, [])
    current, seen = heap.allocate(1 << 20), set()
    for _ in range(10):
        seen.add(current.offset)
        current = heap.allocate(1 << 20)
    assert len(seen) == 2


def test_a_heap_tells_its_use() -> None:
    heap = Heap(1 << 20, [])
    first, second = heap.allocate(100), heap.allocate(8192)
    assert heap.use() == HeapUse(
        used=128 + 8192, peak=128 + 8192, blocks=2, largest=8192, largest_free=(1 << 20) - 4096 - 8192
    )
    second.free()
    assert heap.use() == HeapUse(128, 128 + 8192, 2, 8192, (1 << 20) - 128)
    heap.forget_use()
    assert heap.use() == HeapUse(128, 128, 0, 0, (1 << 20) - 128)
    first.free()


def test_full_memory_says_how_much_was_wanted() -> None:
    with pytest.raises(OutOfMemoryError, match="device memory is full: 8192 bytes wanted"):
        Heap(4096, []).allocate(8000)


def test_idle_memory_is_given_back(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_module, "KEPT_IDLE_BYTES", 1 << 24)
    heap = Heap(SIZE, [segment])
    block = heap.allocate((1 << 24) + (1 << 22))
    segment.bytes[block.offset : block.offset + block.size] = 1
    touched = os.fstat(segment.descriptor).st_blocks * 512
    assert touched >= block.size
    del block
    small = heap.allocate(64)
    assert os.fstat(segment.descriptor).st_blocks * 512 < touched // 10
    del small


def test_segments_have_no_name_and_cannot_shrink(segment: Segment) -> None:
    assert "memfd:test" in os.readlink(f"/proc/self/fd/{segment.descriptor}")
    assert os.fstat(segment.descriptor).st_mode & 0o777 == 0o600
    with pytest.raises(PermissionError):
        os.ftruncate(segment.descriptor, 4096)


def test_a_second_mapping_sees_the_same_bytes(segment: Segment) -> None:
    other = Segment.open(os.getpid(), segment.descriptor, SIZE)
    segment.bytes[12345] = 77
    assert other.bytes[12345] == 77


def test_opening_what_is_not_ours_is_refused(segment: Segment) -> None:
    with pytest.raises(ClusterError, match="is not the shared memory"):
        Segment.open(os.getpid(), segment.descriptor, SIZE + 4096)
    with pytest.raises(ClusterError, match="the host's shared memory cannot be opened"):
        Segment.open(os.getpid(), 1_000_000, SIZE)


def test_control_block_header_is_checked() -> None:
    block = ControlBlock.create(4)
    try:
        with pytest.raises(ClusterError, match="another version"):
            ControlBlock.open(os.getpid(), block.segment.descriptor, 5)
        ControlBlock.open(os.getpid(), block.segment.descriptor, 4).close()
        first, second = block.carve(1), block.carve(100)
        assert first >= control_words.fixed_bytes(4)
        assert (first % 64, second - first) == (0, 64)
    finally:
        block.close()


VALUES = [
    (F32, np.arange(6, dtype=np.float32).reshape(2, 3)),
    (PRED, np.array([True, False, True])),
    (BF16, np.array([1.5, -2.0], ml_dtypes.bfloat16)),
    (S4, np.array([[-8, 7]], ml_dtypes.int4)),
    (F32, np.array(3.5, np.float32)),
    (F32, np.empty((0, 4), np.float32)),
]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda v: str(getattr(v, "name", getattr(v, "shape", v))))
def test_arrays_are_views_that_keep_their_memory(segment: Segment, kind: object, value: np.ndarray) -> None:
    heap = Heap(SIZE, [segment])
    block = heap.allocate(value.nbytes)
    segment.bytes[block.offset : block.offset + value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    array = DeviceArray(segment, block, block.offset, 3, Shape(kind, value.shape))  # type: ignore[arg-type]
    del block
    view = np.asarray(array)
    assert view.dtype == value.dtype
    assert view.shape == value.shape
    assert view.tobytes() == value.tobytes()
    del array
    gc.collect()
    if value.nbytes:
        assert not view.flags.writeable
        assert heap.used > 0, "the view must keep its block"
    del view
    gc.collect()
    assert heap.used == 0


def test_a_full_control_block_says_what_to_do() -> None:
    block = ControlBlock.create(1)
    try:
        with pytest.raises(OutOfMemoryError, match=r"control block, 1024 MiB, is full: .*; delete executables"):
            block.carve(SIZE)
    finally:
        block.close()
