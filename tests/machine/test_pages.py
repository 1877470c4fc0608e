"""Memory that can't be had: first writes of pages, and growth of the devices' memories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from distxla.errors import OutOfMemoryError
from distxla.machine import pages, segments
from distxla.machine.heap import KEPT_IDLE_BYTES, UNCHECKED_BYTES, Heap
from distxla.machine.memory_limits import Limit
from distxla.machine.segments import Segment
from distxla.runtime.hosts.budget import HostHeadroom

MiB = 1 << 20

FULL = """
import os, sys
import numpy as np
from distxla.errors import OutOfMemoryError
from distxla.machine import pages, segments
from distxla.machine.segments import Segment

segments.is_strict = lambda: True
pages._MADV_POPULATE_WRITE = int(sys.argv[2])
descriptor = os.open(sys.argv[1] + "/memory", os.O_RDWR | os.O_CREAT)
os.ftruncate(descriptor, 16 << 20)
segment = Segment(descriptor, 16 << 20)
segment.write(0, np.full(1 << 20, 1, np.uint8))
try:
    segment.write(2 << 20, np.full(8 << 20, 2, np.uint8))
except OutOfMemoryError as error:
    print(error.message)
segment.write(100, np.full(1000, 3, np.uint8))
print(segment.bytes[99], segment.bytes[100])
"""


@pytest.mark.parametrize("advice", [23, 12345], ids=["populated", "on an old kernel"])
def test_memory_without_pages_is_an_error_and_no_signal(tmp_path: Path, advice: int) -> None:
    mount = 'mount -t tmpfs -o size=4m tmpfs "$1" || exit 77; shift; exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mount, "-", str(tmp_path)]
    program = [sys.executable, "-c", FULL, str(tmp_path), str(advice)]
    try:
        done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if (done.returncode in (1, 77) and "unshare" in done.stderr + done.stdout) or done.returncode == 77:
        pytest.skip("mounting takes root")
    assert done.returncode == 0, done.stderr
    refused, values = done.stdout.splitlines()
    assert refused == "8 MiB of shared memory, for what is written at 0x200000, can't be had: No space left on device"
    assert values == "1 3"  # what was there before can be written


def test_pages_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    make = pages.BackedPages.make
    monkeypatch.setattr(pages.BackedPages, "make", lambda self, *part: (asked.append(part), make(self, *part)))
    monkeypatch.setattr(segments, "is_strict", lambda: True)
    segment = Segment.create("test", 256 * MiB)
    segment.write(10, np.ones(5000, np.uint8))
    segment.write(0, np.ones(8192, np.uint8))  # the same two pages
    assert asked == [(0, 8192)]
    segment.write(4096, np.ones(8192, np.uint8))
    assert asked[1:] == [(4096, 8192)]
    segment.punch(0, 8192)
    segment.write(0, np.ones(4096, np.uint8))
    assert asked[2:] == [(0, 4096)]
    segment.write(MiB, np.empty(0, np.uint8))
    segment.write(MiB, np.ones(130 * MiB, np.uint8))
    assert asked[3:] == [(MiB, 64 * MiB), (65 * MiB, 64 * MiB), (129 * MiB, 2 * MiB)]
    segment.close()


class Host:
    """A host of 4 devices with so much memory. held: bytes that they have touched."""

    def __init__(self, size: int) -> None:
        self.size, self.held, self.looks = size, 0, 0

    def headroom(self) -> HostHeadroom:
        return HostHeadroom(range(4), lambda: self.held, self._free)

    def _free(self) -> Limit:
        self.looks += 1
        return Limit(self.size, "the control group /job (memory.max)")

    def punch(self, offset: int, size: int) -> None:
        self.held -= size


def test_growth_that_the_host_cannot_hold_is_an_error_of_the_devices() -> None:
    host = Host(256 * MiB)
    heap = Heap(1 << 40, [], headroom=host.headroom())
    held = [heap.allocate(32 * MiB, (0, 1, 2, 3))]
    held.append(heap.allocate(32 * MiB, (2, 7)))  # the other one lives elsewhere
    host.held = 160 * MiB
    with pytest.raises(OutOfMemoryError) as refused:
        heap.allocate(32 * MiB, (0, 1, 2, 3))
    assert refused.value.message == (
        "devices 0-3: 32 MiB more each can't be had: this host has 96 MiB left (the control group /job (memory.max)), "
        "and its devices hold 160 MiB"
    )
    held.append(heap.allocate(96 * MiB, (2,)))
    with pytest.raises(OutOfMemoryError, match="device 3: 64 MiB more can't be had"):
        heap.allocate(64 * MiB, (3,))
    del held[0]
    held.append(heap.allocate(32 * MiB, (0, 1, 2, 3)))  # its pages are there


def test_small_growth_is_looked_at_now_and_then_and_use_again_never() -> None:
    host = Host(1 << 30)
    heap = Heap(1 << 40, [], headroom=host.headroom())
    blocks = [heap.allocate(MiB) for _ in range(64)]
    assert host.looks == 64 * MiB // (UNCHECKED_BYTES + MiB)
    before = host.looks
    for _ in range(100):
        del blocks[7]
        blocks.insert(7, heap.allocate(MiB))
    assert host.looks == before


def test_idle_memory_is_given_back_before_growth_is_refused() -> None:
    host = Host(256 * MiB)
    heap = Heap(1 << 40, [host], headroom=host.headroom())
    blocks = [heap.allocate(32 * MiB, (0,)) for _ in range(7)]
    host.held = 7 * 32 * MiB
    del blocks[0:6:2]  # 96 MiB in pieces, less than is kept
    assert 3 * 32 * MiB < KEPT_IDLE_BYTES
    blocks.append(heap.allocate(64 * MiB, (0,)))
    assert host.held == 4 * 32 * MiB
    assert len(blocks) == 5


def test_what_was_given_back_is_asked_for_when_it_is_used_again() -> None:
    """Behind it, too, where something is in use, and something larger than it comes first."""
    host = Host(1024 * MiB)
    heap = Heap(1 << 40, [host], headroom=host.headroom())
    blocks = [heap.allocate(size * MiB, (0,)) for size in (400, 100)]
    host.held = 500 * MiB
    del blocks[0]  # more than is in use: given back
    for size in (20, 500, 300):  # in its place; behind all; in its place again
        blocks.append(heap.allocate(size * MiB, (0,)))
        host.held += size * MiB
    assert host.held == 920 * MiB
    with pytest.raises(OutOfMemoryError):
        heap.allocate(200 * MiB, (0,))


def test_untouched_blocks_stay_promised_when_memory_is_given_back() -> None:
    host = Host(1024 * MiB)
    heap = Heap(1 << 40, [host], headroom=host.headroom())
    untouched, idle = heap.allocate(600 * MiB, (0,)), heap.allocate(300 * MiB, (0,))
    host.held = 300 * MiB
    del idle
    with pytest.raises(OutOfMemoryError, match="device 0: 600 MiB more can't be had"):
        heap.allocate(600 * MiB, (0,))
    assert host.held == 0
    assert untouched.size == 600 * MiB
    assert heap.allocate(400 * MiB, (0,)).size == 400 * MiB


def test_memory_that_more_devices_use_again_is_growth() -> None:
    host = Host(256 * MiB)
    heap = Heap(1 << 40, [host], headroom=host.headroom())
    block = heap.allocate(100 * MiB, (0,))
    host.held = 100 * MiB
    del block
    with pytest.raises(OutOfMemoryError, match=r"devices 0-3: .* more each can't be had"):
        heap.allocate(100 * MiB, (0, 1, 2, 3))
    assert heap.allocate(100 * MiB, (0, 1)).size == 100 * MiB


def test_heaps_without_headroom_grow() -> None:
    devices: Sequence[int] = (0, 1)
    assert Heap(1 << 40, []).allocate(1 << 39, devices).size == 1 << 39
