"""Streams whose ends another process has: their states, and how a program's failures at them are told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.stream import STATE_BYTES
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import ArgumentError, ClusterError, StreamEndError
from distxla.ir.shape import Shape
from distxla.ir.stream_key import FIRST_HOST_CALL, INFEED, OUTFEED, StreamKey, StreamKind
from distxla.machine.heap import Heap
from distxla.machine.segments import Segment
from distxla.program.abi import Status
from distxla.runtime.streams.stream_ends import LocalStreamMemory
from distxla.runtime.streams.stream_states import StreamStates
from distxla.runtime.streams.streams import ClusterStreams
from distxla.runtime.values.host import Records
from distxla.text.shapes import parse_shape

SIZE = 1 << 27
CALLS = StreamKey(StreamKind.SEND, FIRST_HOST_CALL)


class Memories:
    """The owner's streams of two devices, and those of the process that has the second one."""

    def __init__(self) -> None:
        self.control = ControlBlock.create(2)
        self.segments = [Segment.create("test", SIZE) for _ in range(2)]
        self.states = StreamStates(lambda d, key: self.control.carve(STATE_BYTES), self._none, self._none, lambda: None)

    @staticmethod
    def _none(*given: object) -> Any:
        raise AssertionError("the owner of states only allocates nothing and reaches no memory")

    def ends(self, places: list[tuple[int, str, int]]) -> ClusterStreams:
        known = {(device, StreamKey.of_code(code)): offset for device, code, offset in places}
        heap = Heap(SIZE, self.segments)
        return ClusterStreams(
            lambda device, key: known[device, key],
            heap.allocate,
            lambda device: LocalStreamMemory(self.control.segment.bytes, self.segments[device]),
            lambda: None,
        )

    def close(self) -> None:
        self.control.close()
        for segment in self.segments:
            segment.close()


@pytest.fixture
def memories() -> Iterator[Memories]:
    made = Memories()
    yield made
    made.close()


def _program(*keys: StreamKey | None, item: Shape | None = None) -> Any:
    communicators = [SimpleNamespace(stream=key) for key in keys]
    sites = [SimpleNamespace(communicator=k, item=item, instruction=f"i.{k}", location=None) for k in range(len(keys))]
    return SimpleNamespace(communicators=communicators, sites=sites)


@pytest.mark.parametrize("key", [INFEED, OUTFEED, CALLS, StreamKey(StreamKind.RECV, 3)], ids=str)
def test_a_key_has_a_code(key: StreamKey) -> None:
    assert StreamKey.of_code(key.code) == key


def test_places_are_those_of_a_programs_streams_and_stay(memories: Memories) -> None:
    found = memories.states.places(_program(CALLS, None, CALLS, INFEED), [1])
    assert [(device, StreamKey.of_code(code)) for device, code, _ in found] == [(1, CALLS), (1, INFEED)]
    assert memories.states.places(_program(INFEED), [1, 0])[0] == found[1]
    assert memories.states.place(1, CALLS) == found[0][2]


def test_a_process_has_the_ends_of_its_devices(memories: Memories) -> None:
    places = memories.states.places(_program(CALLS, INFEED), [1])
    ends = memories.ends(places)
    ends.infeed(1).put(1.5)
    assert ends.infeed(1).pending == 1
    assert ends.place(1, INFEED) == places[1][2]
    with pytest.raises(KeyError):
        ends.infeed(0)


def test_the_owner_has_no_ends(memories: Memories) -> None:
    for make in (memories.states.infeed, memories.states.outfeed):
        with pytest.raises(ClusterError, match="device 1 belong to the process that uses the device"):
            make(1)
    memories.states.load(0, _program(OUTFEED, item=parse_shape("f32[4]")), [0, 1])
    assert not memories.states.holds(0)


def _records(status: int, number: int) -> Records:
    row = bytearray(control_words.RECORD_BYTES)
    row[control_words.R_STATUS : control_words.R_STATUS + 4] = int(status).to_bytes(4, "little")
    row[control_words.R_ROUND : control_words.R_ROUND + 8] = number.to_bytes(8, "little")
    return Records({1: bytes(row)}, 2)


def test_failures_at_streams_are_told_without_ends(memories: Memories) -> None:
    memories.states.load(0, _program(INFEED, item=parse_shape("f32[4]{0}")), [0, 1])
    error = memories.states.failure(1, Status.STREAM_ENDED, _records(Status.STREAM_ENDED, 4))
    assert isinstance(error, StreamEndError)
    assert error.message == "i.0 on device 1 wants item 4: the infeed was closed before it"
    error = memories.states.failure(1, Status.ITEM_REFUSED, _records(Status.ITEM_REFUSED, 4))
    assert isinstance(error, ArgumentError)
    assert error.message == "i.0 on device 1: item 4 of the infeed: expected f32[4], found another type"


def test_a_closed_cluster_makes_no_more_states(memories: Memories) -> None:
    memories.states.close()
    with pytest.raises(ClusterError, match="closed"):
        memories.states.place(0, INFEED)
