"""The exception of a signal handler at any place where programs are loaded, connected, called and unloaded."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.collectives.transports import control_block_view
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.machine import memory_files
from distxla.machine.segments import Segment
from distxla.program.artifact import CompiledProgram
from distxla.runtime import cluster
from distxla.runtime.arrays import executable
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.calls import call_end, call_in_flight, dispatch, program_loading, unloading
from distxla.runtime.calls.program_loading import ProgramLoader
from distxla.runtime.cluster import Cluster
from distxla.runtime.failures import deadlocks
from distxla.runtime.groups import channel_connections, communicators
from distxla.runtime.groups.communicators import Communicators
from distxla.runtime.hosts import local
from distxla.runtime.hosts import slice as slices
from distxla.runtime.streams import streams
from distxla.runtime.values import shared_image
from distxla.runtime.values.shared_image import SharedImage
from tests.interrupted import Alarm, interrupted_everywhere
from tests.runtime import hand_made

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
BOTH_WAYS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
PROGRAM = f"""HloModule swaps, replica_count=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[4] parameter(0)
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=CHANNEL, {BOTH_WAYS}
  r = (f32[4], u32[], token[]) recv(t), channel_id=CHANNEL, {BOTH_WAYS}
  sd = token[] send-done(s), channel_id=CHANNEL
  rd = (f32[4], token[]) recv-done(r), channel_id=CHANNEL
  y = f32[4] get-tuple-element(rd), index=0
  z = f32[4] all-reduce(y), channel_id=GROUP, to_apply=add
  o = token[] outfeed(z, t), outfeed_shape=f32[4]
  ROOT w = f32[4] add(y, z)
}}
"""
ARGUMENTS = [[np.full(4, 1, np.float32)], [np.full(4, 2, np.float32)]]
CALLING = (
    program_loading,
    channel_connections,
    communicators,
    call_end,
    dispatch,
    streams,
    control_block_view,
    local,
    slices,
    unloading,
)
CALLS = (*CALLING, cluster, executable)


class Bench:
    """A cluster, and a program of it that stays loaded."""

    def __init__(self, opened: Cluster) -> None:
        self.cluster = opened
        module = dx.parse(PROGRAM.replace("CHANNEL", "1").replace("GROUP", "2"), "stays.hlo")
        self.stays = opened.compile(module)
        self.other = opened.compile(dx.parse(PROGRAM.replace("CHANNEL", "3").replace("GROUP", "4"), "goes.hlo")).program
        self.require_right(self.stays)
        self.require_right(self.new())
        self.await_unloaded()
        self.used = self.control.used

    @property
    def loader(self) -> ProgramLoader:
        assert self.cluster.loader is not None
        return self.cluster.loader

    @property
    def control(self) -> ControlBlock:
        return self.cluster.hosts.local.control

    def new(self) -> Executable:
        """One that is not loaded: nothing else uses its channel and its group."""
        return hand_made.adopted(self.cluster, self.other)

    def loaded(self) -> Executable:
        made = self.new()
        self.require_right(made)
        return made

    def unload(self, made: Executable) -> None:
        assert made.number is not None
        with self.cluster.queue.reserved(), self.cluster._lock:
            loaded = self.loader.loaded.get(made.number)
            if loaded is not None:
                self.loader.unload(loaded)

    def require_right(self, made: Executable) -> None:
        """The call gives the right results, and one item on each device behind those of interrupted ones."""
        outs = made(ARGUMENTS, time_limit=60)
        assert [float(np.asarray(row[0])[0]) for row in outs] == [5, 4]
        for device in range(2):
            items = list(self.cluster.outfeed(device))
            assert {float(item[0]) for item in items} == {3}

    def await_unloaded(self) -> None:
        gc.collect()
        while len(self.loader.loaded) > 1:  # without end where a program that nobody holds is not unloaded
            time.sleep(0.001)

    def require_whole(self) -> None:
        """Only what stays has a part of the control block; the rest is zero, and words are as they were configured."""
        self.await_unloaded()
        assert self.control.used == self.used
        heap, found = self.control._heap, self.control.segment.bytes
        for begin, end in zip(heap._bounds[::2], heap._bounds[1::2], strict=True):
            assert not found[begin : min(end, heap._high)].any(), "what is free is zero"
        require_configured(self.loader.communicators, self.control)
        numbers = [pair.number for pair in self.loader.channels._pairs.values()] + self.loader.channels._free_numbers
        assert sorted(numbers) == list(range(1, self.loader.channels._numbers + 1)), "each number has one pair at most"
        assert self.loader.dispatcher.programs.keys() == self.loader.loaded.keys()


def require_configured(found: Communicators, control: ControlBlock) -> None:
    for word, value in found._configured.items():
        assert control.load_at(4 * word) == value


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Cluster(2) as opened:
        yield Bench(opened)


@pytest.mark.cluster
@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("module", CALLS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_an_interrupted_call_leaves_no_part_of_its_program(bench: Bench, module: ModuleType) -> None:
    def call(made: Executable) -> None:
        made(ARGUMENTS)

    for place, made in interrupted_everywhere([module], bench.new, call):
        bench.require_right(made)
        bench.require_right(bench.stays)
        del made
        assert place
    bench.require_whole()


STUCK = """HloModule stuck, replica_count=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
waits { x = f32[] parameter(0)
  ROOT y = f32[] all-reduce(x), replica_groups={}, to_apply=add }
ends { ROOT x = f32[] parameter(0) }
ENTRY main {
  x = f32[] parameter(0)
  zero = u32[] constant(0)
  id = u32[] replica-id()
  first = pred[] compare(id, zero), direction=EQ
  ROOT y = f32[] conditional(first, x, x), true_computation=waits, false_computation=ends
}
"""
FAILURES: dict[str, tuple[Callable[[Cluster], Callable[[], object]], type[dx.DistxlaError]]] = {
    "a device fails": (
        lambda cluster: partial(hand_made.adopted(cluster, hand_made.waiting(2, failing=0, status=3)), []),
        dx.ExecutionError,
    ),
    "the time limit runs out": (
        lambda cluster: partial(hand_made.adopted(cluster, hand_made.waiting(2)), [], time_limit=0.01),
        dx.TimeLimitError,
    ),
    "devices can never go on": (
        lambda cluster: partial(cluster.compile(dx.parse(STUCK, "stuck.hlo")), [np.float32(1)]),
        dx.DeadlockError,
    ),
}


@pytest.mark.cluster
@pytest.mark.parametrize("failure", FAILURES)
def test_an_interrupt_at_any_place_of_a_failure_leaves_nothing_of_the_call(
    bench: Bench, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No abort flag, and no device: neither where the error is found, nor where the call is ended for it."""
    monkeypatch.setattr(dispatch, "SLICE_NS", 1_000_000)
    monkeypatch.setattr(deadlocks, "SETTLE_S", 0.001)
    make, expected = FAILURES[failure]
    made = [make(bench.cluster)]
    with pytest.raises(expected):
        made[0]()

    def call(fails: Callable[[], object]) -> None:
        with contextlib.suppress(expected):
            fails()

    for place, failed in interrupted_everywhere([dispatch, call_in_flight, call_end], lambda: made[0], call):
        bench.require_right(bench.stays)
        del failed
        assert place
    made.clear()
    bench.require_whole()


@pytest.mark.cluster
def test_an_interrupted_unloading_is_ended_by_the_next(bench: Bench) -> None:
    for _, made in interrupted_everywhere(CALLING, bench.loaded, bench.unload):
        bench.unload(made)
        del made
        bench.require_whole()
        bench.require_right(bench.stays)


# --- without a cluster


def test_an_interrupted_image_is_closed() -> None:
    """Unless nobody has it yet, or any more: right behind the call that makes it, and where closing begins."""

    def use(program: CompiledProgram) -> None:
        with SharedImage(program):
            pass

    def open_images() -> set[str]:
        found = (entry.path for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path))
        return {path for path in found if "distxla-image" in os.readlink(path)}

    program, left = hand_made.add_one(2), list[str]()
    for place, _ in interrupted_everywhere([shared_image, memory_files], lambda: program, use, returns=False):
        for path in open_images():
            left.append(place.partition(",")[0])
            os.close(int(os.path.basename(path)))
    assert sorted(left) == ["SharedImage.__enter__", "SharedImage.__exit__", "SharedImage.close", "memory_file"]


SIZE = 256


class Remote:
    """Another host's control block."""

    index = 1

    def __init__(self) -> None:
        self.bytes = np.zeros(1 << 22, np.uint8)

    def control_write(self, offset: int, data: bytes) -> None:
        self.bytes[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def control_zero(self, offset: int, size: int) -> None:
        self.bytes[offset : offset + size] = 0

    def control_read(self, offset: int, size: int, seconds: float | None = None) -> bytes:
        return self.bytes[offset : offset + size].tobytes()


class States:
    """States of programs 1 and 2, in the blocks of two hosts."""

    def __init__(self) -> None:
        self.control = ControlBlock(Segment.create("test", 1 << 22), 2)
        self.remote: Any = Remote()
        self.found = Communicators(self.control, remotes=[self.remote])
        self.begins = {key: self.found.shared((key,), SIZE, program, ()) for key, program in [("one", 1), ("two", 2)]}
        self.found.shared(("two",), SIZE, 1, ())
        self.fill()

    def fill(self) -> None:
        for begin in self.begins.values():
            self.found.configure(begin + 8, 5, 6)
            for memory in (self.control.segment.bytes, self.remote.bytes):
                memory[begin + 64 : begin + SIZE] = 7

    def memories(self, key: str) -> list[list[int]]:
        begin = self.begins[key]
        return [memory[begin : begin + SIZE].tolist() for memory in (self.control.segment.bytes, self.remote.bytes)]

    def clear(self) -> None:
        self.found.clear(self.begins["two"], SIZE)

    def forget(self) -> None:
        self.found.forget(1)

    def share(self) -> None:
        self.begins["three"] = self.found.shared(("three",), SIZE, 3, ())


@pytest.fixture
def states() -> Iterator[Callable[[], States]]:
    """Makes new ones, and closes them."""
    with ExitStack() as made:

        def new() -> States:
            found = States()
            made.callback(found.control.close)
            return found

        yield new


def words(*values: int) -> list[int]:
    return list(np.array(values, np.uint32).tobytes()) + [0] * (SIZE - 4 * len(values))


def test_no_interrupted_clearing_loses_a_configured_word(states: Callable[[], States]) -> None:
    for place, found in interrupted_everywhere([communicators], states, States.clear):
        require_configured(found.found, found.control)
        found.clear()
        assert found.memories("two") == [words(0, 0, 5, 6)] * 2, place


def test_what_an_interrupt_leaves_unfreed_the_next_frees_and_zeroes(states: Callable[[], States]) -> None:
    for place, found in interrupted_everywhere([communicators, control_block_view], states, States.forget):
        found.forget()
        assert found.memories("one") == [words()] * 2, place
        assert found.found.users(("one",)) == frozenset(), place
        assert found.found.users(("two",)) == {2}
        assert found.control.used == SIZE, place
        again = found.found.shared(("one",), SIZE, 3, ())
        found.found.configure(again + 8, 5, 6)
        assert found.memories("one") == [words(0, 0, 5, 6)] * 2, "no word counts as written already"


def test_a_state_whose_making_was_interrupted_goes_with_its_program(states: Callable[[], States]) -> None:
    for place, found in interrupted_everywhere([communicators, control_block_view], states, States.share, error=Alarm):
        found.share()
        found.found.forget(3)
        assert found.control.used == 2 * SIZE, place
