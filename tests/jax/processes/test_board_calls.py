"""Calls that processes issue themselves, through the call queue: the test plays devices and owner. The second part is
about what frame_launches.py tells the owner of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distxla as dx
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.control_block import CommandKind
from distxla.collectives.protocols.launch_board import ENTRIES, CallState, Refusal
from distxla.jax.processes import board_calls
from distxla.jax.processes.frame_launches import FrameLaunch, FrameLaunches
from distxla.jax.processes.launches import AttachedProgram
from distxla.jax.processes.messages import (
    ABORTED,
    DISAGREES,
    INTERRUPTED,
    SLOW,
    Launch,
    Over,
    Refused,
    Trouble,
    pack_json,
)
from distxla.jax.processes.told_errors import pack_error
from distxla.runtime.arrays.call_queue import MOST_CALLS
from distxla.wire.frame import Frame
from tests.jax.processes.board_cases import NUMBER, Program, Shared, await_true

BOTH, OTHER = AttachedProgram(7, "f", 1, (0, 1)), AttachedProgram(8, "g", 1, (0, 1))
ALONE = AttachedProgram(9, "h", 2, (0,))


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared(2)
    yield made
    made.close()


def test_a_call_of_one_process_starts_at_once(shared: Shared) -> None:
    (first, _) = shared.processes
    call = first.begin(ALONE, "train.py:3")
    await_true(lambda: shared.has_started(0))
    assert shared.command(0) == (CommandKind.RUN, NUMBER, 1)
    shared.finish(0)
    call.wait()
    (logged,) = shared.log_view(0).entries(0)
    assert (logged.turn, logged.set, logged.program, logged.ordinal, logged.site) == (0, 2, 9, 0, "train.py:3")
    assert not first.told or first.told == [((2, 0), SLOW)]


def test_the_last_process_starts_the_call_on_the_devices_of_all(shared: Shared) -> None:
    first, second = shared.processes
    calls = [first.begin(BOTH)]
    board = shared.board_view(1, 2)
    await_true(lambda: board.state(0) is CallState.OPEN)
    assert not shared.has_started(0)
    calls.append(second.begin(BOTH))
    await_true(lambda: shared.has_started(0) and shared.has_started(1))
    area = shared.control.address + shared.area(7)
    assert list((ctypes.c_uint64 * 4).from_address(area)) == [1, 2, 1, 2]
    for process, call in enumerate(calls):
        shared.finish(process)
        call.wait()
    assert board.state(0) is CallState.COMPLETE


def test_calls_follow_one_another(shared: Shared) -> None:
    for _ in range(5):
        calls = [process.begin(BOTH) for process in shared.processes]
        await_true(lambda: shared.has_started(0) and shared.has_started(1))
        shared.finish(1)
        calls[1].wait()
        shared.finish(0)
        calls[0].wait()
    assert [shared.load(k, control_words.H_COMMAND) for k in range(2)] == [5, 5]


def test_another_program_is_told_and_the_verdict_raised(shared: Shared) -> None:
    first, second = shared.processes
    call = first.begin(BOTH)
    await_true(lambda: shared.board_view(1, 2).state(0) is CallState.OPEN)
    differs = second.begin(OTHER)
    while (differs.key, DISAGREES) not in second.told:
        assert second.has_told.acquire(timeout=60)
    assert shared.board_view(1, 2).refuse(0) is Refusal.REFUSED
    for process in shared.processes:
        process.tell((1, 0), dx.CollectiveMismatchError("they differ"), is_refused=True)
    for running in (call, differs):
        with pytest.raises(dx.CollectiveMismatchError, match="they differ"):
            running.wait()
    assert [shared.command(k)[0] for k in range(2)] == [CommandKind.NONE, CommandKind.NONE]
    test_calls_that_go_on(shared)


def test_calls_that_go_on(shared: Shared) -> None:
    calls = [process.begin(BOTH) for process in shared.processes]
    await_true(lambda: shared.has_started(0) and shared.has_started(1))
    for process, call in enumerate(calls):
        shared.finish(process)
        call.wait()


def test_a_late_process_finds_that_its_call_was_refused(shared: Shared) -> None:
    first, second = shared.processes
    call = first.begin(BOTH)
    await_true(lambda: shared.board_view(1, 2).state(0) is CallState.OPEN)
    assert shared.board_view(1, 2).refuse(0) is Refusal.REFUSED
    first.tell(call.key, dx.ReplicaLostError("gone"), is_refused=True)
    with pytest.raises(dx.ReplicaLostError):
        call.wait()
    late = second.begin(BOTH)
    second.tell(late.key, dx.ReplicaLostError("gone"), is_refused=True)
    with pytest.raises(dx.ReplicaLostError):
        late.wait()
    assert second.told == []


def test_a_held_process_issues_nothing(shared: Shared) -> None:
    (first, _) = shared.processes
    shared.store(0, control_words.H_HOLD, 1)
    call = first.begin(ALONE)
    assert shared.log_view(0).issued() is None
    shared.store(0, control_words.H_HOLD, 0)
    await_true(lambda: shared.has_started(0))
    shared.finish(0)
    call.wait()


def test_a_call_that_the_owner_has_taken_is_over_when_it_says_so(shared: Shared) -> None:
    (first, _) = shared.processes
    call = first.begin(ALONE)
    await_true(lambda: shared.has_started(0))
    assert first.has_told.acquire(timeout=60)
    shared.store(0, control_words.H_HOLD, 1)
    shared.finish(0)
    assert not call.is_over
    first.tell(call.key, None)
    call.wait()


def test_devices_that_came_back_from_a_failed_call_have_not_done_it(shared: Shared) -> None:
    (first, _) = shared.processes
    call = first.begin(ALONE)
    await_true(lambda: shared.has_started(0))
    shared.store(0, control_words.H_ABORT, 1)
    while (call.key, ABORTED) not in first.told:
        assert first.has_told.acquire(timeout=60)
    shared.finish(0)
    shared.store(0, control_words.H_FAILED, shared.load(0, control_words.H_COMMAND))
    shared.store(0, control_words.H_ABORT, 0)  # as if the owner had let go long ago
    assert not call.is_over
    first.tell(call.key, dx.ExecutionError("it has failed"))
    with pytest.raises(dx.ExecutionError):
        call.wait()
    assert first.kept == [call.rows]


def test_a_number_under_which_a_call_has_failed_comes_again(shared: Shared) -> None:
    (first, _) = shared.processes
    shared.store(0, control_words.H_FAILED, 1)
    call = first.begin(ALONE)
    await_true(lambda: shared.has_started(0))
    shared.finish(0)
    call.wait()


def test_a_call_that_was_refused_too_late_is_awaited(shared: Shared) -> None:
    calls = [process.begin(BOTH) for process in shared.processes]
    await_true(lambda: shared.has_started(0) and shared.has_started(1))
    for process, call in zip(shared.processes, calls):
        process.tell(call.key, dx.ReplicaLostError("gone"), is_refused=True)
    await_true(lambda: not any(process.outcomes for process in shared.processes))
    for process, call in enumerate(calls):
        assert not call.is_over
        shared.finish(process)
        with pytest.raises(dx.ReplicaLostError):
            call.wait()
    test_calls_that_go_on(shared)


def test_a_call_that_does_not_start_is_told_again(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that was to start it may have died amid that."""
    monkeypatch.setattr(board_calls, "TOLD_AGAIN", 1)
    (first, _) = shared.processes
    call = first.begin(BOTH)
    while first.told.count((call.key, SLOW)) < 3:
        assert first.has_told.acquire(timeout=60)
    first.tell(call.key, dx.ReplicaLostError("gone"), is_refused=True)
    with pytest.raises(dx.ReplicaLostError):
        call.wait()


def test_a_call_left_undecided_is_taken_back(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_calls, "INTERRUPT_S", 0.0)
    (first, _) = shared.processes
    call = first.begin(BOTH)
    await_true(lambda: shared.board_view(1, 2).state(0) is CallState.OPEN)
    first.stop = dx.ClusterError("interrupted")
    with pytest.raises(dx.ClusterError, match="interrupted"):
        call.wait()
    assert first.undecided == {call.key}
    assert shared.command(0)[0] == CommandKind.RUN
    first.decided(call.key)
    assert shared.command(0)[0] == CommandKind.NONE


def test_a_log_keeps_more_calls_than_a_queue() -> None:
    """Else the lines of calls that wait in the queue would be lost before these are issued."""
    assert MOST_CALLS < ENTRIES


def test_a_device_that_fails_is_told(shared: Shared) -> None:
    (first, _) = shared.processes
    call = first.begin(ALONE)
    await_true(lambda: shared.has_started(0))
    shared.finish(0, status=3)
    while (call.key, ABORTED) not in first.told:
        assert first.has_told.acquire(timeout=60)
    first.tell(call.key, dx.ExecutionError("it has failed"))
    with pytest.raises(dx.ExecutionError):
        call.wait()


def test_an_interrupt_is_told_and_the_answer_awaited(shared: Shared) -> None:
    (first, _) = shared.processes
    call = first.begin(BOTH)
    await_true(lambda: shared.board_view(1, 2).state(0) is CallState.OPEN)
    first.stop = dx.ClusterError("interrupted")
    while (call.key, INTERRUPTED) not in first.told:
        assert first.has_told.acquire(timeout=60)
    assert not call.is_over
    assert shared.board_view(1, 2).refuse(0) is Refusal.REFUSED
    first.tell(call.key, dx.ClusterError("process 0 was interrupted"), is_refused=True)
    with pytest.raises(dx.ClusterError, match=r"^cluster: interrupted$"):
        call.wait()
    assert first.undecided == set()
    assert shared.command(0)[0] == CommandKind.NONE


def test_nothing_is_issued_while_an_earlier_call_is_undecided(shared: Shared) -> None:
    (first, _) = shared.processes
    first.undecided.add((1, 0))
    call = first.begin(ALONE)
    assert shared.log_view(0).issued() is None
    first.undecided.clear()
    await_true(lambda: shared.has_started(0))
    shared.finish(0)
    call.wait()


def test_a_call_alone_that_was_not_issued_ends_at_an_interrupt(shared: Shared) -> None:
    (first, _) = shared.processes
    shared.store(0, control_words.H_HOLD, 1)
    first.stop = dx.ClusterError("interrupted")
    call = first.begin(ALONE)
    with pytest.raises(dx.ClusterError, match="interrupted"):
        call.wait()
    assert first.told == []
    assert first.undecided == set()


def test_a_call_that_waits_long_is_told_again_when_it_has_started(shared: Shared) -> None:
    first, second = shared.processes
    call = first.begin(BOTH)
    while first.told != [(call.key, SLOW)]:
        assert first.has_told.acquire(timeout=60)
    other = second.begin(BOTH)
    while first.told != [(call.key, SLOW)] * 2:
        assert first.has_told.acquire(timeout=60)
    for process, running in enumerate((call, other)):
        shared.finish(process)
        running.wait()


class Connection:
    """That of FrameLaunches: what is posted is sent by `flush`."""

    failure: dx.DistxlaError | None = None

    def __init__(self) -> None:
        self.pushed: dict[type[Frame], Callable[[Frame, bytearray], object]] = {}
        self.lost: Callable[[dx.DistxlaError], object] = lambda failure: None
        self.sent: list[Frame] = []
        self.posted: list[Callable[[], object]] = []

    def post(self, send: Callable[[], object]) -> None:
        self.posted.append(send)

    def send_now(self, frame: Frame, payload: object = ()) -> None:
        self.sent.append(frame)

    def tell(self, frame: Frame, payload: object = ()) -> None:
        self.post(lambda: self.send_now(frame))

    def flush(self) -> None:
        while self.posted:
            self.posted.pop(0)()

    def push(self, frame: Frame, error: dx.DistxlaError | None) -> None:
        """The owner tells something."""
        self.pushed[type(frame)](frame, bytearray(pack_json(pack_error(error)) if error is not None else b""))


class Launching:
    """The launches of a process, with its board calls. failed: what the queue is told."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self.connection = shared, Connection()
        self.failed: list[FrameLaunch] = []
        self.taken = 0
        given: Any = self.connection, lambda: None, lambda launch, error: self.failed.append(launch), self._take
        self.launches = FrameLaunches(*given)
        process = shared.processes[0]
        self.launches.boards = process.calls
        self.gate = process.gate

    def _take(self) -> None:
        self.taken += 1

    def of(self, program: AttachedProgram) -> FrameLaunch:
        executable: Any = Program(self.shared, 0, program)
        return self.launches.of(executable, "train.py:7")

    @property
    def is_barred(self) -> bool:
        return bool(self.gate.closed)


@pytest.fixture
def launching(shared: Shared) -> Launching:
    return Launching(shared)


def test_calls_have_their_places_before_the_owner_is_told(launching: Launching) -> None:
    launches = [launching.of(program) for program in (BOTH, ALONE, OTHER)]
    for launch in launches:
        launch.begin()
        launch.begin()
    assert [launch.key for launch in launches] == [(1, 0), (2, 0), (1, 1)]
    assert launching.connection.sent == []
    launching.connection.flush()
    assert launching.connection.sent == [Launch(1, 7, 0, 0), Launch(1, 8, 1, 2)]
    logged = launching.shared.log_view(0).entries(0)
    assert [(call.set, call.by_frames, call.site) for call in logged] == [
        (1, True, "train.py:7"),
        (2, False, "train.py:7"),
        (1, True, "train.py:7"),
    ]


def test_the_owner_is_told_in_the_order_of_places(launching: Launching) -> None:
    first, second = launching.of(BOTH), launching.of(OTHER)
    second.begin()
    first.begin()
    launching.connection.posted.reverse()
    launching.connection.flush()
    assert [frame.turn for frame in launching.connection.sent if isinstance(frame, Launch)] == [0, 1]


def test_a_verdict_that_comes_before_the_owner_is_told(launching: Launching) -> None:
    """It has seen the log."""
    launch = launching.of(BOTH)
    launch.begin()
    launching.connection.push(Refused(1, 0), dx.CollectiveMismatchError("they differ"))
    assert launch.verdict is None
    launching.connection.flush()
    assert isinstance(launch.verdict, dx.CollectiveMismatchError)
    assert launching.failed == [launch]
    assert not launching.is_barred


def test_a_verdict_on_a_call_to_come_keeps_native_calls_back_until_it_comes(launching: Launching) -> None:
    launching.connection.push(Refused(1, 0), dx.ReplicaLostError("gone"))
    assert launching.is_barred
    launch = launching.of(BOTH)
    launch.begin()
    launching.connection.flush()
    assert isinstance(launch.verdict, dx.ReplicaLostError)
    assert not launching.is_barred


def test_a_verdict_on_a_native_call_has_the_queue_take_it(launching: Launching) -> None:
    launching.shared.processes[0].made(BOTH)  # it counts, as a native one does
    launching.connection.push(Refused(1, 0), dx.ReplicaLostError("gone"))
    assert launching.taken == 1
    found = launching.launches.outcome((1, 0))
    assert found is not None
    assert found.is_refused
    assert launching.launches.outcome((1, 0)) is None


def test_outcomes_that_nobody_asks_for_are_forgotten(launching: Launching) -> None:
    """Of native calls that were over here when the owner took them."""
    for _ in range(3):
        launching.shared.processes[0].made(BOTH)
    for ordinal in range(3):
        launching.connection.push(Over(1, ordinal), None)
    assert launching.taken == 0
    assert [launching.launches.outcome((1, ordinal)) for ordinal in range(2)] == [None, None]
    assert launching.launches.outcome((1, 2)) is not None


def test_native_calls_are_kept_back_behind_a_call_that_was_skipped(launching: Launching) -> None:
    """Its slot of the board is the one of the call after the next."""
    launch = launching.of(BOTH)
    launch.skip(dx.OutOfMemoryError("no memory"))
    assert launching.is_barred
    assert launching.launches.is_undecided
    assert [type(frame) for frame in launching.connection.sent] == [Launch, Trouble]
    launching.connection.push(Refused(1, 0), dx.OutOfMemoryError("process 0 can't"))
    assert not launching.is_barred
    assert not launching.launches.is_undecided
    assert launching.launches.outcome((1, 0)) is None


def test_a_call_that_was_refused_and_is_skipped_keeps_nothing_back(launching: Launching) -> None:
    launch = launching.of(BOTH)
    launch.begin()
    launching.connection.flush()
    launching.connection.push(Refused(1, 0), dx.ReplicaLostError("gone"))
    launch.skip(dx.ArgumentError("an argument has failed"), by_argument=True)
    assert not launching.is_barred
    assert not launching.launches.is_undecided


def test_a_call_alone_that_is_skipped_is_told_to_nobody(launching: Launching) -> None:
    launch = launching.of(ALONE)
    launch.skip(dx.OutOfMemoryError("no memory"))
    launching.connection.flush()
    assert launching.connection.sent == []
    assert not launching.is_barred
