"""Waits for calls under way, of which some were refused before their turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import distxla as dx
from distxla.runtime.arrays import call_queue
from distxla.runtime.arrays.call_queue import CallQueue, PendingCall

GATE_S = 10.0  # for a test that fails


class Launch:
    """A call of several processes, of which nobody is told."""

    def begin(self) -> None: ...

    def skip(self, why: BaseException, *, by_argument: bool = False) -> None: ...


class Waits:
    """Counts how often the queue is asked to wait, or to take a call, and does something then."""

    def __init__(self) -> None:
        self.count = 0
        self.then: Callable[[int], object] = lambda count: None

    def __call__(self) -> None:
        self.count += 1
        self.then(self.count)

    def begin(self, then: Callable[[int], object]) -> None:
        self.count, self.then = 0, then


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def queue(waits: Waits) -> Iterator[CallQueue]:
    made = CallQueue(waits)
    yield made
    made.close("the test is over")


def submitted(queue: CallQueue, gate: threading.Event, refused: int, result_bytes: int = 0) -> PendingCall:
    """A call that runs until the gate is open, and behind it some that were refused; the first one."""
    first = PendingCall("first", lambda: gate.wait(GATE_S), result_bytes=result_bytes)
    queue.submit(first)
    launches = [Launch() for _ in range(refused)]
    for launch in launches:
        queue.submit(PendingCall("refused", lambda: None, launch=launch, result_bytes=result_bytes))
    for launch in launches:
        queue.fail(launch, dx.CollectiveMismatchError("another program"))
    return first


def test_drain_waits_for_the_calls_before_a_refused_one(queue: CallQueue, waits: Waits) -> None:
    gate = threading.Event()
    first = submitted(queue, gate, refused=1)
    waits.begin(lambda count: gate.set())
    queue.drain()
    assert first.is_over


def test_drain_waits_on_where_the_call_that_it_waits_for_is_refused(queue: CallQueue, waits: Waits) -> None:
    gate, launch = threading.Event(), Launch()
    first = PendingCall("first", lambda: gate.wait(GATE_S))
    queue.submit(first)
    queue.submit(PendingCall("second", lambda: None, launch=launch))

    def waiting(count: int) -> None:
        if count == 1:
            queue.fail(launch, dx.CollectiveMismatchError("another program"))
        else:
            gate.set()

    waits.begin(waiting)
    queue.drain()
    assert first.is_over


def test_a_full_queue_settles_with_the_call_before_the_refused_ones(
    queue: CallQueue, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_queue, "MOST_CALLS", 2)
    gate = threading.Event()
    first = PendingCall("first", lambda: gate.wait(GATE_S))
    launch = Launch()
    queue.submit(first)
    queue.submit(PendingCall("refused", lambda: None, launch=launch))
    queue.fail(launch, dx.CollectiveMismatchError("another program"))
    waits.begin(lambda count: gate.set())
    queue.settle(0.0)
    assert first.is_over


@pytest.mark.parametrize("result_bytes", [0, 20])
def test_room_is_awaited_without_spinning(
    queue: CallQueue, waits: Waits, monkeypatch: pytest.MonkeyPatch, result_bytes: int
) -> None:
    monkeypatch.setattr(call_queue, "MOST_CALLS", 4 if not result_bytes else 100)
    monkeypatch.setattr(call_queue, "MOST_BYTES", 80)
    gate = threading.Event()
    first = submitted(queue, gate, refused=3, result_bytes=result_bytes)
    waits.begin(lambda count: gate.set() if count == 2 else None)  # the first time it is asked for room
    queue.await_room(result_bytes)
    assert waits.count == 2
    assert first.is_over
    assert queue.take_unseen() is not None
