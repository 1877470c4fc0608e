"""Streams and host calls of devices whose ends other processes than the owner have."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.jax.processes.owned_cluster import OwnedCluster
from tests.jax.processes.attached_streams_cases import Attached, Together
from tests.ops.feed_programs import echo, sums
from tests.runtime.arrays.host_calls_cases import ARGS, CALLS, Calls, check_results, given

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def together() -> Iterator[Together]:
    with OwnedCluster([range(1), range(1, 2)]) as cluster:
        cluster.wait_started()
        made = Together(cluster)
        yield made
        made.close()


def test_functions_run_where_the_device_belongs(together: Together) -> None:
    calls = Calls()
    step = together.load(CALLS, calls.functions())
    for _ in range(3):
        check_results(together.run(step, ARGS))
    for device in range(2):
        assert [number for number, of in calls.seen if of == device] == [0, 1, 2] * 3


def test_a_function_that_raises_ends_the_call_and_the_next_one_is_right(together: Together) -> None:
    calls = Calls()
    fails = [True]

    def sine(x: Any, *, device: int) -> tuple[Any]:
        if device == 1 and fails[0]:
            raise ValueError("no sine today")
        return calls.sine(x, device=device)

    step = together.load(CALLS, calls.functions(f1=sine))
    with pytest.raises(dx.ExecutionError, match=r"host call 1 raised ValueError: no sine today \(.*py:\d+"):
        together.run(step, ARGS)
    fails[0] = False
    for _ in range(2):
        check_results(together.run(step, ARGS))


def test_an_interrupt_ends_the_wait_for_a_function_that_a_failed_call_has_left(together: Together) -> None:
    calls, fails, entered, go_on = Calls(), [True], threading.Event(), threading.Event()

    def sine(x: Any, *, device: int) -> tuple[Any]:
        if fails[0] and device == 1:
            entered.set()
            go_on.wait()
        elif fails[0]:
            entered.wait()
            raise ValueError("no sine today")
        return calls.sine(x, device=device)

    step = together.load(CALLS, calls.functions(f1=sine))
    with pytest.raises(dx.ExecutionError, match="no sine today"):
        together.run(step, ARGS)
    fails[0] = False
    one = together.processes[1]
    one.stop = dx.ClusterError("the call was interrupted")
    try:
        with pytest.raises(dx.ClusterError, match="the call was interrupted"), one.streams.during([1], one.calls):
            raise AssertionError("the function has not returned")
    finally:
        one.stop = None
        go_on.set()
    check_results(together.run(step, ARGS))


def test_a_function_without_results_may_fail_when_the_devices_are_done(together: Together) -> None:
    calls = Calls()

    def told(x: Any, *, device: int) -> None:
        if device == 0:
            raise ValueError("not told")

    step = together.load(CALLS, calls.functions(f0=told))
    with pytest.raises(dx.ExecutionError, match="on device 0: host call 0 raised ValueError: not told"):
        together.run(step, ARGS)
    assert together.failure() is None


def test_a_second_process_has_no_part_in_programs_of_the_first_one(together: Together) -> None:
    one, other = together.processes
    made = together.load(echo("f32[4]"), {}, [0])
    one.streams.infeed(0).put(np.arange(4, dtype=np.float32))
    made([])
    assert one.streams.outfeed(0).get().tolist() == [0, 1, 2, 3]
    with pytest.raises(dx.ClusterError, match="the infeed of device 1: no program that uses it is loaded"):
        other.streams.infeed(1)


def test_an_end_of_a_stream_is_told_and_taken_back(together: Together) -> None:
    made = together.load(sums(2), {}, [0])
    feed, gone = together.processes[0].streams.infeed(0), together.processes[0].streams.outfeed(0)
    zeros, ones = [np.zeros(4, np.float32)], np.ones(4, np.float32)
    feed.put(ones)
    feed.close()
    with pytest.raises(dx.StreamEndError, match="infeed"):
        feed.put(ones)
    with pytest.raises(dx.StreamEndError, match=r"on device 0 wants item \d+: the infeed was closed before it"):
        together.run(made, zeros)
    assert gone.get().tolist() == [1, 1, 1, 1]
    for _ in range(2):
        feed.put(ones)
    assert np.asarray(together.run(made, zeros)[0][0]).tolist() == [2, 2, 2, 2]
    assert [item[0] for item in gone] == [1, 2]


def test_large_items_get_room_in_the_processes_heap(together: Together) -> None:
    one = together.processes[0]
    made = together.load(echo("f32[9000000]"), {}, [0])
    big = np.arange(9000000, dtype=np.float32)
    one.streams.infeed(0).put(big)
    together.run(made, [])
    np.testing.assert_array_equal(one.streams.outfeed(0).get(), big)
    assert one.heap.used > 2 * big.nbytes


def test_waits_end_when_the_process_lets_go(together: Together) -> None:
    alone = Attached(together.cluster.attached_memory(), range(1))
    made = together.cluster.compile(dx.parse(echo("f32[4]")), [0])
    facts = together.cluster.load(made, alone.devices)
    alone.streams.load(facts.number, made.program, facts.devices, facts.states)
    alone.close()
    with pytest.raises(dx.ClusterError, match="closed"):
        alone.streams.outfeed(0).get()


def test_operands_are_those_of_the_device(together: Together) -> None:
    seen: dict[int, list[Any]] = {}
    calls = Calls()
    step = together.load(CALLS, calls.functions(f0=lambda x, *, device: seen.update({device: x.tolist()})))
    together.run(step, ARGS)
    assert seen == {device: given(device).tolist() for device in range(2)}
