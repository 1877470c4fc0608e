"""The exception of a signal handler at any place of the allocator."""

from __future__ import annotations

import gc
import itertools
import random
import sys
from collections.abc import Sequence

import pytest

from distxla.errors import InternalError, OutOfMemoryError
from distxla.machine import heap as heap_module
from distxla.machine.heap import Block, Heap
from tests.interrupted import interrupted_everywhere

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")

SIZE = 1 << 20
SIZES = (64, 128, 4096, 8192)


class Room:
    """A host that has memory for everything but what `most` says. punched: ranges that were given back."""

    def __init__(self, most: int = 1 << 40) -> None:
        self.most = most
        self.punched: list[tuple[int, int]] = []

    def count(self, devices: Sequence[int]) -> int:
        return max(1, len(devices))

    def resident(self) -> int:
        return 0

    def require(self, promised: int, growth: int, devices: Sequence[int]) -> None:
        if promised > self.most:
            raise OutOfMemoryError("the host is full")

    def promise(self, promised: int) -> None:
        """Nobody else has to know."""

    def punch(self, offset: int, size: int) -> None:
        self.punched.append((offset, offset + size))


class State:
    """A heap with holes."""

    def __init__(self, chance: random.Random, room: Room | None, size: int = SIZE) -> None:
        self.heap = Heap(size, [] if room is None else [room], headroom=room)
        self.live = [self.heap.allocate(chance.choice(SIZES), (0, 1)) for _ in range(20)]
        chance.shuffle(self.live)
        del self.live[:9]


def require_consistent(heap: Heap, live: Sequence[Block]) -> None:
    """Live blocks and free ranges are the whole heap, once; the sums are theirs."""
    used = heap.used
    free = list(zip(heap._bounds[::2], heap._bounds[1::2], strict=True))
    pieces = sorted([*free, *((block.offset, block.offset + block.size) for block in live)])
    assert (pieces[0][0], pieces[-1][1]) == (0, heap.size)
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(pieces))
    assert used == sum(block.size for block in live)
    assert all(begin < end for begin, end in free)
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(free)), "neighbours are joined"
    assert heap.value_offsets == {block.offset for block in live}
    assert heap.value_bytes == used
    if heap._headroom is not None:
        assert heap._hosted[1] == 2 * used  # on two devices each


@pytest.mark.parametrize("has_headroom", [False, True])
@pytest.mark.parametrize("size", [64, 4096])
def test_an_interrupted_allocation_changes_nothing(size: int, has_headroom: bool) -> None:
    chance = random.Random(3)
    places = 0
    for place, state in interrupted_everywhere(
        [heap_module],
        lambda: State(random.Random(7), Room() if has_headroom else None),
        lambda state: state.live.append(state.heap.allocate(size, (0, 1))),
    ):
        places += 1
        require_consistent(state.heap, state.live)
        for _ in range(10):
            state.live.append(state.heap.allocate(chance.choice(SIZES), (0, 1)))
            state.live.pop(chance.randrange(len(state.live)))
        require_consistent(state.heap, state.live)
        state.live.clear()
        assert state.heap.used == 0, place
    assert places > 50


def test_an_interrupted_free_frees_at_most_once() -> None:
    def free(state: State) -> None:
        for block in state.live[:3]:
            block.free()
        del state.live[:3]

    for _, state in interrupted_everywhere([heap_module], lambda: State(random.Random(7), None), free):
        kept = state.live[3:] if len(state.live) > 8 else state.live
        for block in state.live[: len(state.live) - len(kept)]:
            block.free()
        others = [state.heap.allocate(64, (0, 1)) for _ in range(40)]  # where the freed ones were
        del state.live[: len(state.live) - len(kept)]
        require_consistent(state.heap, [*state.live, *others])


def test_no_interrupt_loses_a_block_that_goes_with_its_last_reference() -> None:
    for _, state in interrupted_everywhere(
        [heap_module], lambda: State(random.Random(7), None), lambda state: (state.live.clear(), state.heap.used)
    ):
        state.live.clear()
        assert state.heap.used == 0
        assert state.heap._bounds == [0, SIZE]


def test_a_block_in_a_cycle_comes_back() -> None:
    heap = Heap(SIZE, [])
    cycle: list[object] = [heap.allocate(64)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert heap.used == 0


def test_idle_memory_is_given_back_in_spite_of_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_module, "KEPT_IDLE_BYTES", 0)
    monkeypatch.setattr(heap_module, "UNCHECKED_BYTES", 0)
    monkeypatch.setattr(heap_module, "PUNCHED_BYTES", 4096)

    def prepared() -> State:
        state = State(random.Random(7), Room(2 * SIZE))
        state.live.append(state.heap.allocate(SIZE // 2, (0, 1)))
        del state.live[-1]
        return state

    for _, state in interrupted_everywhere(
        [heap_module], prepared, lambda state: state.live.append(state.heap.allocate(8192, (0, 1)))
    ):
        require_consistent(state.heap, state.live)
        state.live.append(state.heap.allocate(SIZE // 2, (0, 1)))
        require_consistent(state.heap, state.live)
        promised, _, holes = state.heap._hosted
        punched = state.heap._segments[0].punched  # type: ignore[attr-defined]
        assert promised <= state.heap._checked <= 2 * SIZE
        assert all(any(a <= begin and end <= b for a, b in punched) for begin, end in holes)
        used = {(block.offset, block.offset + block.size) for block in state.live}
        assert not any(begin < b and a < end for begin, end in holes for a, b in used)


def test_free_bytes_are_not_freed_again() -> None:
    """What should never be is an error, not two arrays in the same bytes."""
    heap = Heap(SIZE, [])
    block = heap.allocate(64)
    heap._bounds = [0, SIZE]
    del block
    with pytest.raises(InternalError, match="bytes 0 to 64 of device memory: expected a block in use, found free"):
        heap.allocate(64)
