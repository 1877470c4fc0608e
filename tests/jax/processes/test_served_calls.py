"""Calls of programs whose devices call functions of their processes: when they are over, and how they fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from distxla.errors import ExecutionError, ReplicaLostError
from distxla.jax.processes import messages
from distxla.runtime.arrays.host_calls import never
from tests.jax.processes.attached_streams_cases import Attached
from tests.jax.processes.fake_process_cases import LOCAL, FakeProcess, Served, partitioned
from tests.runtime.arrays.host_calls_cases import PYTHON

pytestmark = pytest.mark.cluster
CALL = tuple[int, int]

# a function whose result all devices add up and tell another function, for which none waits
TELLING = f"""HloModule jit_telling, entry_computation_layout={{(f32[4]{{0}})->f32[4]{{0}}}}, num_partitions=4

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  twice = (f32[4]{{0}}) custom-call(x), {PYTHON % 1}
  y = f32[4]{{0}} get-tuple-element(twice), index=0
  told = () custom-call(y), {PYTHON % 0}
  ROOT s = f32[4]{{0}} all-reduce(y), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true,
    to_apply=add
}}
"""


class Serving:
    """A process of two devices, which call its functions."""

    def __init__(self, process: FakeProcess) -> None:
        self.process = process
        memory = process.attached()
        self.devices = range(LOCAL * process.process, LOCAL * (process.process + 1))
        self.attached = Attached(memory, self.devices)
        self.told: list[tuple[int, list[float]]] = []
        self.program = process.compile(partitioned(TELLING), calls=(0, 1))
        facts = process.load(self.program.program)
        self.attached.streams.load(facts.number, self.program.compiled, facts.devices, facts.states)

    def tell(self, x: Any, *, device: int) -> None:
        self.told.append((device, x.tolist()))

    def twice(self, x: Any) -> tuple[Any]:
        return (2 * x,)

    def begin(self) -> tuple[CALL, list[int]]:
        """Submit a call, whose argument is the device's number; where the results will be."""
        call, begin = self.process.launch(self.program), self.attached.heap.allocate(128, self.devices).offset
        for device in self.devices:
            self.attached.memories[device].bytes[begin : begin + 16].view(np.float32)[:] = device
        self.process.ready(call, [[begin, begin + 64] for _ in self.devices])
        return call, [begin + 64] * len(self.devices)

    def done(self, call: CALL) -> None:
        found = self.process.next_told()
        assert found is not None
        assert found[0] == messages.Done(*call)

    def results(self, places: list[int]) -> list[float]:
        memories = self.attached.memories
        return [float(memories[d].bytes[at : at + 4].view(np.float32)[0]) for d, at in zip(self.devices, places)]

    def during(self, **functions: Callable[..., Any]) -> Any:
        given = {0: functions.get("tell", self.tell), 1: functions.get("twice", self.twice)}
        calls = self.attached.streams.bound(self.program.sites, given, self.devices)
        return self.attached.streams.during(self.devices, calls)


@pytest.fixture(scope="module")
def both() -> Iterator[list[Serving]]:
    """The last test ends one of them."""
    served = Served(device_memory="512MiB")
    joined = [served.join(0), served.join(1)]
    found = [Serving(process) for process in joined]
    yield found
    for one in found:
        one.attached.close()
    served.end()


def run(both: list[Serving]) -> list[float]:
    """A call of both."""
    with both[0].during() as first, both[1].during() as second:
        begun = [one.begin() for one in both]
        for one, (call, _), served in zip(both, begun, (first, second)):
            one.done(call)
            served.finish(never)
            one.process.connection.send(messages.Served(*call), [])
        for one, (call, _) in zip(both, begun):
            one.process.over(call)
    return [value for one, (_, places) in zip(both, begun) for value in one.results(places)]


def test_functions_run_in_the_process_of_the_device(both: list[Serving]) -> None:
    for _ in range(2):
        assert run(both) == [12.0] * 4
    for one in both:
        assert sorted(one.told) == [(device, [2 * device] * 4) for device in one.devices for _ in range(2)]


def test_a_call_is_over_when_all_functions_have_returned(both: list[Serving]) -> None:
    one, other = both
    with one.during() as first, other.during() as second:
        (call, _), (same, _) = one.begin(), other.begin()
        for serving, served in ((one, first), (other, second)):
            serving.done(call)
            served.finish(never)
        one.process.connection.send(messages.Served(*call), [])
        one.process.load(one.program.program)  # its answer comes behind what SERVED has caused
        assert one.process.told.empty()
        other.process.connection.send(messages.Served(*same), [])
        one.process.over(call)
        other.process.over(same)


def test_a_function_that_fails_once_the_devices_are_done_is_told_to_all(both: list[Serving]) -> None:
    one, other = both
    others = threading.Event()

    def raises(x: Any, *, device: int) -> None:
        if device == 2:
            assert others.wait(30)  # once one has failed, calls of other devices get no results
            raise ValueError("not told")
        others.set()

    def fail() -> None:
        with one.during() as first, other.during(tell=raises) as second:
            (call, _), (same, _) = one.begin(), other.begin()
            one.done(call)
            other.done(same)
            first.finish(never)
            one.process.connection.send(messages.Served(*call), [])
            assert second.finish(never)
            failure = second.failure
            assert failure is not None
            other.process.trouble(same, messages.CALLBACK, failure)
            for serving in both:
                with pytest.raises(ExecutionError, match=r"on device 2 \(process 1\): host call 0 raised ValueError"):
                    serving.process.over(call)
            raise failure

    with pytest.raises(ExecutionError, match="not told"):
        fail()
    assert run(both) == [12.0] * 4


def test_a_function_that_fails_while_devices_wait_ends_the_call_for_all(both: list[Serving]) -> None:
    one, other = both

    def raises(x: Any) -> None:
        raise ValueError("nothing twice")

    def fail() -> None:
        with one.during(), other.during(twice=raises) as second:
            (call, _), (same, _) = one.begin(), other.begin()
            while (failure := second.failure) is None:
                threading.Event().wait(0.01)
            other.process.trouble(same, messages.CALLBACK, failure)
            for serving in both:
                with pytest.raises(ExecutionError, match=r"call 1 raised ValueError: nothing twice \(.*test_served"):
                    serving.process.over(call)
            raise failure

    with pytest.raises(ExecutionError, match="nothing twice"):
        fail()
    assert run(both) == [12.0] * 4


def test_a_process_that_ends_meanwhile_ends_the_call(both: list[Serving]) -> None:
    one, other = both
    with one.during() as first, other.during() as second:
        (call, _), _ = one.begin(), other.begin()
        for serving, served in ((one, first), (other, second)):
            serving.done(call)
            served.finish(never)
        one.process.connection.send(messages.Served(*call), [])
        other.process.close()
        with pytest.raises(
            ReplicaLostError,
            match=r"process 1 was lost during its call \d+ \(telling, p1.py:\d+\), whose devices call its",
        ):
            one.process.over(call)
