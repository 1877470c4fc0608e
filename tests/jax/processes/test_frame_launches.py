"""Launches of a process, and its connection, against a test that plays the owner.

The module covers connection_to_owner.py, frame_launches.py and the seam that launches.py declares.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

import distxla as dx
from distxla.jax.processes.connection_to_owner import OwnersConnection
from distxla.jax.processes.frame_launches import FrameLaunches
from distxla.jax.processes.launches import AttachedProgram, Serving
from distxla.jax.processes.messages import (
    CALLBACK,
    INTERRUPTED,
    PROCESS_FRAMES,
    SKIPPED,
    Bye,
    Done,
    Failed,
    Launch,
    Load,
    Loaded,
    Over,
    Ready,
    Refused,
    Served,
    Trouble,
    pack_json,
    unpack_json,
)
from distxla.jax.processes.told_errors import pack_error
from distxla.runtime.arrays.call_queue import CallQueue, PendingCall
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame
from distxla.wire.handshake import Listener, connect, new_secret

BOTH, ALONE = AttachedProgram(7, "f", 1, (0, 1)), AttachedProgram(8, "g", 2, (0,))
ROWS = np.arange(4, dtype=np.uint64).reshape(2, 2)


class Functions:
    """What devices call here; `finish` waits for `returned`, and finds that a function has failed with `fails`."""

    def __init__(self, fails: dx.DistxlaError | None = None) -> None:
        self.returned = threading.Event()
        self.failure: dx.DistxlaError | None = None
        self.fails = fails
        self.refuse: dx.DistxlaError | None = None

    def finish(self, stop: Callable[[], bool]) -> bool:
        while not self.returned.wait(0.02):
            if stop():
                return False
        self.failure = self.fails
        return True


class Executable:
    """With a launch, but no program."""

    def __init__(
        self, launched: AttachedProgram, failure: dx.DistxlaError | None = None, functions: Functions | None = None
    ) -> None:
        self.launched, self.failure, self.loads = launched, failure, 0
        self.functions = functions or Functions()

    def load(self) -> None:
        self.loads += 1
        if self.failure is not None:
            raise self.failure

    def serving(self) -> AbstractContextManager[Serving]:
        if self.functions.refuse is not None:
            raise self.functions.refuse
        return nullcontext(self.functions)


class Owner:
    """The other end: what it has got, and what it tells."""

    def __init__(self) -> None:
        secret = new_secret()
        self._connections: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._done = threading.Event()
        self.listener = Listener("127.0.0.1", secret, self._accept, frames=PROCESS_FRAMES, node=0)
        self.theirs = connect(self.listener.address, secret, frames=PROCESS_FRAMES, node=1)
        self.connection = self._connections.get(timeout=10)

    def _accept(self, connection: Connection) -> None:
        self._connections.put(connection)
        self._done.wait()

    def get(self) -> tuple[Frame, bytes]:
        frame = self.connection.receive()
        return frame, bytes(self.connection.receive_bytes())

    def frames(self, count: int) -> list[Frame]:
        return [self.get()[0] for _ in range(count)]

    def tell(self, frame: Frame, error: dx.DistxlaError | None = None) -> None:
        self.connection.send(frame, [] if error is None else [pack_json(pack_error(error))])

    def close(self) -> None:
        self._done.set()
        self.connection.close()
        self.listener.close()


class Process:
    """What a JAX process has of these things."""

    def __init__(self, owner: Owner) -> None:
        self.queue = CallQueue()
        self.connection = OwnersConnection()
        self.launches = FrameLaunches(self.connection, self.queue.stop_reason, self.queue.fail)
        self.connection.start(owner.theirs)

    def submit(
        self, program: AttachedProgram, failure: dx.DistxlaError | None = None, functions: Functions | None = None
    ) -> PendingCall:
        launch = self.launches.of(Executable(program, failure, functions))
        call = PendingCall(program.name, lambda: launch.run(ROWS, [ROWS]), launch=launch)
        self.queue.submit(call)
        return call

    def close(self) -> None:
        self.connection.close(dx.ClusterError("closed"))
        self.queue.close("closed")


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    made.close()


@pytest.fixture
def process(owner: Owner) -> Iterator[Process]:
    made = Process(owner)
    yield made
    made.close()


def test_a_call_is_told_when_it_is_submitted_and_runs_when_the_owner_says_so(owner: Owner, process: Process) -> None:
    call = process.submit(BOTH)
    frame, place = owner.get()
    assert frame == Launch(1, 7, 0, 0)
    assert place.split(b"\0")[0].endswith(b"test_frame_launches.py")
    frame, rows = owner.get()
    assert frame == Ready(1, 0)
    assert rows == ROWS.tobytes()
    assert not call.is_over
    owner.tell(Over(1, 0))
    call.wait()


def test_calls_are_told_before_their_turn_and_each_set_counts_its_own(owner: Owner, process: Process) -> None:
    calls = [process.submit(program) for program in (BOTH, ALONE, BOTH)]
    found = owner.frames(4)
    assert [frame for frame in found if isinstance(frame, Launch)] == [
        Launch(1, 7, 0, 0),
        Launch(2, 8, 0, 1),
        Launch(1, 7, 1, 2),
    ]
    for ready in (Ready(1, 0), Ready(2, 0), Ready(1, 1)):
        assert ready in found or owner.frames(1) == [ready]
        owner.tell(Over(ready.set, ready.ordinal))
    for call in calls:
        call.wait()


def test_a_verdict_at_a_calls_end_is_its_error(owner: Owner, process: Process) -> None:
    call = process.submit(BOTH)
    owner.frames(2)
    owner.tell(Over(1, 0), dx.ReplicaLostError("process 1 has ended"))
    with pytest.raises(dx.ReplicaLostError, match="process 1 has ended"):
        call.wait()


def test_a_verdict_after_which_no_call_can_run_is_kept(owner: Owner, process: Process) -> None:
    error = dx.ReplicaLostError("the replica of device 1 has ended")
    for is_unusable in (False, True):
        call = process.submit(BOTH)
        owner.frames(2)
        told = {**pack_error(error), "unusable": is_unusable}
        owner.connection.send(Over(1, int(is_unusable)), [pack_json(told)])
        with pytest.raises(dx.ReplicaLostError):
            call.wait()
        assert (process.launches.lost is not None) == is_unusable


def test_a_call_behind_others_is_refused_at_once(owner: Owner, process: Process) -> None:
    first, second = process.submit(ALONE), process.submit(BOTH)
    assert Launch(1, 7, 0, 1) in owner.frames(3)
    owner.tell(Refused(1, 0), dx.CollectiveMismatchError("process 1 calls g"))
    with pytest.raises(dx.CollectiveMismatchError, match="process 1 calls g"):
        second.wait()
    assert not first.is_over
    owner.tell(Over(2, 0))
    first.wait()
    third = process.submit(BOTH)
    assert owner.frames(2) == [Launch(1, 7, 1, 2), Ready(1, 1)]
    owner.tell(Over(1, 1))
    third.wait()


def test_a_call_that_was_refused_before_it_is_made_is_told_all_the_same(owner: Owner, process: Process) -> None:
    owner.tell(Refused(1, 0), dx.ReplicaLostError("process 1 has ended"))
    process.submit(ALONE)
    owner.frames(2)
    owner.tell(Over(2, 0))  # the refusal was received before
    process.queue.drain()
    call = process.submit(BOTH)
    assert owner.frames(1) == [Launch(1, 7, 0, 1)]
    with pytest.raises(dx.ReplicaLostError, match="process 1 has ended"):
        call.wait()


def test_a_program_that_cannot_be_loaded_is_skipped(owner: Owner, process: Process) -> None:
    call = process.submit(BOTH, dx.OutOfMemoryError("no memory"))
    assert owner.frames(1) == [Launch(1, 7, 0, 0)]
    frame, told = owner.get()
    assert frame == Trouble(1, 0, SKIPPED)
    assert unpack_json(told)["error"]["message"] == "no memory"
    assert unpack_json(told)["by_argument"] is False
    with pytest.raises(dx.OutOfMemoryError):
        call.wait()


def test_a_call_whose_argument_failed_is_skipped_for_that(owner: Owner, process: Process) -> None:
    first = process.submit(BOTH, dx.OutOfMemoryError("no memory"))
    owner.frames(2)
    launch = process.launches.of(Executable(BOTH))
    second = PendingCall("f", lambda: None, [first], launch=launch)
    process.queue.submit(second)
    assert owner.frames(1) == [Launch(1, 7, 1, 1)]
    frame, told = owner.get()
    assert frame == Trouble(1, 1, SKIPPED)
    assert unpack_json(told)["by_argument"] is True
    with pytest.raises(dx.OutOfMemoryError):
        second.wait()


def test_a_call_that_is_never_queued_takes_its_place_among_those_of_the_others(owner: Owner, process: Process) -> None:
    launch = process.launches.of(Executable(BOTH))
    for _ in range(2):
        launch.begin()
        launch.skip(dx.OutOfMemoryError("no memory"))
    assert owner.frames(2) == [Launch(1, 7, 0, 0), Trouble(1, 0, SKIPPED)]
    process.submit(BOTH)
    assert owner.frames(2) == [Launch(1, 7, 1, 1), Ready(1, 1)]
    owner.tell(Over(1, 1))
    process.queue.drain()


def test_an_interrupt_is_told_and_ends_the_call_once_the_owner_has_ended_it(owner: Owner, process: Process) -> None:
    call = process.submit(BOTH)
    owner.frames(2)
    interrupts = threading.Thread(target=process.queue.interrupt)
    interrupts.start()
    assert owner.frames(1) == [Trouble(1, 0, INTERRUPTED)]
    assert not call.is_over
    owner.tell(Over(1, 0), dx.ClusterError("process 0 was interrupted"))
    interrupts.join()
    assert call.is_over
    with pytest.raises(dx.ClusterError, match="the call was interrupted"):
        call.wait()


def test_a_call_is_served_once_all_functions_have_returned(owner: Owner, process: Process) -> None:
    functions = Functions()
    call = process.submit(BOTH, functions=functions)
    owner.frames(2)
    owner.tell(Done(1, 0))
    functions.returned.set()
    assert owner.frames(1) == [Served(1, 0)]
    assert not call.is_over
    owner.tell(Over(1, 0))
    call.wait()


def test_a_function_that_raises_is_told_and_the_verdict_is_the_calls_error(owner: Owner, process: Process) -> None:
    functions = Functions()
    call = process.submit(BOTH, functions=functions)
    owner.frames(2)
    functions.failure = dx.ExecutionError("host call 0 raised ValueError")
    frame, told = owner.get()
    assert frame == Trouble(1, 0, CALLBACK)
    assert unpack_json(told)["error"]["message"] == "host call 0 raised ValueError"
    owner.tell(Over(1, 0), dx.ExecutionError("in process 0: host call 0 raised ValueError"))
    with pytest.raises(dx.ExecutionError, match="in process 0: host call 0"):
        call.wait()


def test_a_function_that_raises_when_the_devices_are_done_is_told_too(owner: Owner, process: Process) -> None:
    functions = Functions(dx.ExecutionError("host call 0 raised ValueError"))
    call = process.submit(BOTH, functions=functions)
    owner.frames(2)
    owner.tell(Done(1, 0))
    functions.returned.set()
    assert owner.frames(1) == [Trouble(1, 0, CALLBACK)]
    owner.tell(Over(1, 0), dx.ExecutionError("host call 0 raised ValueError"))
    with pytest.raises(dx.ExecutionError):
        call.wait()


def test_a_wait_for_functions_ends_with_the_call(owner: Owner, process: Process) -> None:
    """One may never return: the verdict is told all the same."""
    call = process.submit(BOTH, functions=Functions())
    owner.frames(2)
    owner.tell(Done(1, 0))
    owner.tell(Over(1, 0), dx.ReplicaLostError("process 1 has ended"))
    with pytest.raises(dx.ReplicaLostError, match="process 1 has ended"):
        call.wait()


def test_a_wait_for_functions_ends_with_an_interrupt(owner: Owner, process: Process) -> None:
    call = process.submit(BOTH, functions=Functions())
    owner.frames(2)
    owner.tell(Done(1, 0))
    interrupts = threading.Thread(target=process.queue.interrupt)
    interrupts.start()
    assert owner.frames(1) == [Trouble(1, 0, INTERRUPTED)]
    owner.tell(Over(1, 0), dx.ClusterError("process 0 was interrupted"))
    interrupts.join()
    with pytest.raises(dx.ClusterError, match="the call was interrupted"):
        call.wait()


def test_a_call_whose_functions_cannot_be_served_is_skipped(owner: Owner, process: Process) -> None:
    functions = Functions()
    functions.refuse = dx.ClusterError("the cluster is closed")
    call = process.submit(BOTH, functions=functions)
    assert owner.frames(2) == [Launch(1, 7, 0, 0), Trouble(1, 0, SKIPPED)]
    with pytest.raises(dx.ClusterError, match="closed"):
        call.wait()


def test_a_frame_is_sent_although_the_connection_is_closed_right_behind_it(owner: Owner, process: Process) -> None:
    connection = process.connection

    sends = threading.Event()

    def until_closing() -> None:
        sends.set()
        while connection.failure is None:
            threading.Event().wait(0.01)

    connection.post(until_closing)
    sends.wait()
    connection.tell(Bye())
    connection.close(dx.ClusterError("closed"))
    assert owner.frames(1) == [Bye()]


def test_all_calls_fail_where_the_owner_ends(owner: Owner, process: Process) -> None:
    calls = [process.submit(ALONE), process.submit(BOTH)]
    owner.frames(3)
    owner.close()
    for call in (*calls, process.submit(BOTH)):
        with pytest.raises(dx.ClusterError, match="owner of the devices does not answer"):
            call.wait()
    with pytest.raises(dx.ClusterError, match="owner of the devices does not answer"):
        process.connection.ask(lambda request: Load(request, 1))


class Memory:
    """Something that devices may use."""


def test_memory_is_held_from_a_failure_until_a_call_succeeds(process: Process) -> None:
    of_a_call, of_a_buffer, free = Memory(), Memory(), Memory()
    gone = [weakref.ref(memory) for memory in (of_a_call, of_a_buffer, free)]
    process.launches.keep_after_failure([free])
    process.launches.keep([of_a_call])
    process.launches.keep_after_failure([of_a_buffer])
    del of_a_call, of_a_buffer, free
    assert [reference() is None for reference in gone] == [False, False, True]
    process.launches.settled()
    assert [reference() is None for reference in gone] == [True, True, True]


def test_answers_come_in_any_order(owner: Owner, process: Process) -> None:
    found = dict[int, int]()

    def ask(program: int) -> None:
        frame, _ = process.connection.ask(lambda request: Load(request, program))
        assert isinstance(frame, Loaded)
        found[program] = frame.number

    threads = [threading.Thread(target=ask, args=(program,)) for program in (1, 2)]
    for thread in threads:
        thread.start()
    asked = [frame for frame in owner.frames(2) if isinstance(frame, Load)]
    for load in sorted(asked, key=lambda load: load.request, reverse=True):
        owner.tell(Loaded(load.request, 10 * load.program))
    for thread in threads:
        thread.join()
    assert found == {1: 10, 2: 20}


def test_an_answer_may_be_an_error(owner: Owner, process: Process) -> None:
    def fail() -> None:
        frame = owner.frames(1)[0]
        assert isinstance(frame, Load)
        owner.tell(Failed(frame.request), dx.OutOfMemoryError("device memory is full"))

    thread = threading.Thread(target=fail)
    thread.start()
    with pytest.raises(dx.OutOfMemoryError, match="device memory is full"):
        process.connection.ask(lambda request: Load(request, 1))
    thread.join()
