"""Calls that processes issue themselves, through the call queue: the test plays devices and owner."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

import distxla as dx
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.control_block import CommandKind
from distxla.collectives.protocols.launch_board import CallState, Refusal
from distxla.jax.processes.launches import AttachedProgram
from distxla.jax.processes.messages import ABORTED, DISAGREES, INTERRUPTED, SLOW
from tests.jax.processes.board_cases import NUMBER, Shared, await_true

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
