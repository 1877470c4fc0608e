"""The memories of the owner's devices in a JAX process, and what all heaps in them promise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.jax.processes.attached_memory import AttachedMemories
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.machine.memory_limits import free_memory
from distxla.runtime.hosts.shared_headroom import DEVICES_HEAP, Promises, heap_of

pytestmark = pytest.mark.cluster
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnedCluster]:
    with OwnedCluster([range(1), range(1, 2)], device_memory="1TiB") as opened:
        opened.wait_started()
        yield opened


@pytest.fixture
def both(cluster: OwnedCluster) -> Iterator[list[AttachedMemories]]:
    """As two processes with a device each have them."""
    facts = cluster.attached_memory()
    made = [AttachedMemories(facts, process, range(process, process + 1)) for process in range(2)]
    yield made
    for one in made:
        one.close()


def promises(cluster: OwnedCluster) -> Promises:
    found = cluster.hosts.promises
    assert found is not None
    return found


def test_a_process_allocates_behind_the_owners_part(cluster: OwnedCluster, both: list[AttachedMemories]) -> None:
    begin = cluster.attached_memory().device_bytes
    offsets = [one.heap.allocate(MIB, (process,)).offset for process, one in enumerate(both)]
    assert all(begin <= offset < 2 * begin for offset in offsets)
    assert cluster.heap.allocate(MIB, (0, 1)).offset < begin


def test_what_one_writes_the_owner_reads(cluster: OwnedCluster, both: list[AttachedMemories]) -> None:
    block = both[1].heap.allocate(MIB, (1,))
    both[1].memory(1).write(block.offset, np.full(16, 7, np.uint8))
    assert cluster.memory(1).read(block.offset, 16).tolist() == [7] * 16


def test_all_promise_in_one_place(cluster: OwnedCluster, both: list[AttachedMemories]) -> None:
    block = both[1].heap.allocate(64 * MIB, (1,))
    own = cluster.heap.allocate(48 * MIB, (0, 1))
    found = promises(cluster)
    assert found.load(heap_of(1)) >= 64 * MIB
    assert found.load(DEVICES_HEAP) >= 96 * MIB
    assert found.total() >= 160 * MIB
    assert block.size + own.size == 112 * MIB


def test_memory_that_others_promise_is_not_there(cluster: OwnedCluster, both: list[AttachedMemories]) -> None:
    found = promises(cluster)
    before, most = found.load(heap_of(0)), free_memory().bytes
    found.store(heap_of(0), most)  # as if its process had allocated all that is left
    try:
        with pytest.raises(dx.OutOfMemoryError, match=r"device 1: .* more can't be had: .* all processes' arrays have"):
            both[1].heap.allocate(most // 2, (1,))
        with pytest.raises(dx.OutOfMemoryError, match="all processes' arrays have or may take"):
            cluster.heap.allocate(most // 2, (0,))
    finally:
        found.store(heap_of(0), before)


def test_pages_are_given_back_in_the_own_part_only(cluster: OwnedCluster, both: list[AttachedMemories]) -> None:
    theirs, block = cluster.heap.allocate(4 * MIB, (1,)), both[1].heap.allocate(300 * MIB, (1,))
    memory = both[1].memory(1)
    for offset in (theirs.offset, block.offset):
        memory.write(offset, np.full(2 * MIB, 9, np.uint8))
    block.free()
    with pytest.raises(dx.OutOfMemoryError):
        both[1].heap.allocate(1 << 50, (1,))  # it takes freed blocks back first, and gives their pages back
    begin = cluster.attached_memory().device_bytes
    assert memory.resident_part(begin, 2 * begin) == 0
    assert memory.read(theirs.offset, 2 * MIB).min() == 9
