"""The queue of calls under way, without a cluster."""

from __future__ import annotations

import _thread
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

import distxla as dx
from distxla.runtime.arrays import call_queue
from distxla.runtime.arrays.call_queue import CallQueue, PendingCall
from tests.interrupted import Alarm, interrupted_after, interrupted_everywhere
from tests.stopwatch import Stopwatch


@pytest.fixture
def queue() -> Iterator[CallQueue]:
    before = set(threading.enumerate())  # clusters that stay open from test to test have queues, too
    made = CallQueue()
    yield made
    made.close("the test is over")
    assert not [thread for thread in threading.enumerate() if thread.name == "distxla-calls" and thread not in before]


def failing() -> None:
    raise dx.ExecutionError("a device failed")


STOPPED_AFTER_S = 20  # at the latest


def until_stopped(queue: CallQueue) -> Callable[[], None]:
    def run() -> None:
        end = time.monotonic() + STOPPED_AFTER_S
        while (reason := queue.stop_reason()) is None:
            assert time.monotonic() < end
            time.sleep(0.001)
        raise reason

    return run


def test_calls_run_in_order_and_do_not_keep_their_callers(queue: CallQueue) -> None:
    gate, seen = threading.Event(), list[int]()
    first = PendingCall("first", gate.wait)
    queue.submit(first)
    calls = [PendingCall(f"f{k}", lambda k=k: seen.append(k)) for k in range(5)]  # type: ignore[misc]
    for call in calls:
        queue.submit(call)
    assert not first.is_over
    assert not seen
    gate.set()
    calls[-1].wait()
    assert first.is_over
    assert seen == [0, 1, 2, 3, 4]


def test_a_failure_is_raised_at_the_call_and_at_those_that_need_it(queue: CallQueue) -> None:
    first = PendingCall("first", failing)
    second = PendingCall("second", failing, [first])
    third = PendingCall("third", failing, [second])
    other = PendingCall("other", lambda: None)
    for call in (first, second, third, other):
        queue.submit(call)
    other.wait()
    with pytest.raises(dx.ExecutionError, match="a device failed") as caught:
        third.wait()
    notes = "\n".join(caught.value.__notes__)
    assert "second was not run: it takes a result of first, which failed" in notes
    assert third.failed_first is first
    assert queue.take_unseen() is None, "the failure of `third` is that of `first`"
    raised = []
    for _ in range(2):
        with pytest.raises(dx.ExecutionError) as caught:
            first.wait()
        raised.append(caught.value)
    assert raised[0] is not raised[1], "each has a traceback of its own"


def test_a_failure_that_nobody_waited_for_is_kept(queue: CallQueue) -> None:
    queue.submit(PendingCall("first", failing))
    queue.drain()
    assert isinstance(queue.take_unseen(), dx.ExecutionError)
    assert queue.take_unseen() is None


def test_a_submission_waits_while_too_many_calls_or_bytes_are_under_way(
    queue: CallQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_queue, "MOST_CALLS", 3)
    monkeypatch.setattr(call_queue, "MOST_BYTES", 100)
    for sizes in ([0] * 4, [60, 60]):
        gate = threading.Event()
        calls = [PendingCall(f"f{k}", gate.wait, result_bytes=size) for k, size in enumerate(sizes)]
        for call in calls[:-1]:
            queue.submit(call)
        thread = threading.Thread(target=queue.submit, args=(calls[-1],))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        gate.set()
        thread.join(20)
        calls[-1].wait()
    large = PendingCall("large", lambda: None, result_bytes=1000)
    queue.submit(large)  # alone it may be as large as it is
    large.wait()


def test_threads_submit_at_once(queue: CallQueue) -> None:
    seen: list[tuple[int, int]] = []

    def submit(thread: int) -> None:
        for k in range(50):
            queue.submit(PendingCall("f", lambda k=k: seen.append((thread, k))))  # type: ignore[misc]

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.drain()
    for number in range(4):
        assert [k for thread, k in seen if thread == number] == list(range(50))


def test_a_wake_up_without_a_call_is_harmless(queue: CallQueue) -> None:
    """As Ctrl-C amid a submission may leave one."""
    first, second = PendingCall("first", lambda: None), PendingCall("second", lambda: None)
    queue.submit(first)
    first.wait()
    queue._work.put(True)
    queue.submit(second)
    second.wait()


def test_ctrl_c_while_waiting_ends_all_calls_under_way(queue: CallQueue) -> None:
    running = PendingCall("running", until_stopped(queue))
    behind = PendingCall("behind", failing)
    queue.submit(running)
    queue.submit(behind)
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(0.1, behind.wait)
    for call in (running, behind):
        with pytest.raises(dx.ClusterError, match="the call was interrupted"):
            call.wait()
    assert queue.take_unseen() is None
    again = PendingCall("again", lambda: None)
    queue.submit(again)
    again.wait()


def test_ctrl_c_that_does_not_wake_the_waiting_thread(queue: CallQueue) -> None:
    """As one just before the thread blocks."""
    running = PendingCall("running", until_stopped(queue))
    queue.submit(running)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    watch = Stopwatch()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        running.wait()
    assert watch.seconds < STOPPED_AFTER_S / 2  # the call ends by itself then
    timer.join()


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_drained_queue_holds_no_memory(queue: CallQueue, *, is_withdrawn: bool) -> None:
    """Although its thread is late to tell that the call is over."""
    drained = threading.Event()

    class Late(PendingCall):
        def _end(self, error: BaseException | None) -> None:
            drained.wait(10)
            super()._end(error)

    class Memory:
        def use(self) -> None: ...

    memory = Memory()
    freed = weakref.ref(memory)
    call = Late("late", memory.use)
    call.is_stopped = is_withdrawn
    queue.submit(call)
    del memory
    while queue.is_busy:
        time.sleep(0)
    queue.drain()
    assert freed() is None
    assert not call.is_over
    drained.set()
    call._block()


def test_close_ends_calls_and_takes_no_more(queue: CallQueue) -> None:
    running = PendingCall("running", until_stopped(queue))
    queue.submit(running)
    queue.close("the cluster is closed")
    assert isinstance(running.error, dx.ClusterError)
    with pytest.raises(dx.ClusterError, match="the cluster is closed"):
        queue.submit(PendingCall("late", lambda: None))


def test_a_call_within_a_call_is_refused_instead_of_waiting_for_itself(queue: CallQueue) -> None:
    def within() -> None:
        queue.drain()  # returns at once
        queue.submit(PendingCall("inner", lambda: None))

    call = PendingCall("outer", within)
    queue.submit(call)
    with pytest.raises(dx.ClusterError, match="cannot wait for another call"):
        call.wait()


def test_those_who_asked_are_told_once(queue: CallQueue) -> None:
    told: list[tuple[str, bool]] = []
    gate = threading.Event()
    call = PendingCall("first", gate.wait)
    call.then(lambda over: told.append(("before", over.is_over)))
    queue.submit(call)
    gate.set()
    call.wait()
    queue.drain()
    call.then(lambda over: told.append(("after", over.is_over)))
    end = time.monotonic() + 20
    while len(told) < 2 and time.monotonic() < end:
        time.sleep(0.001)
    assert told == [("before", True), ("after", True)]


def test_a_forked_process_cannot_wait(queue: CallQueue) -> None:
    gate = threading.Event()
    call = PendingCall("first", gate.wait)
    queue.submit(call)
    queue._owner += 1  # as in a forked process
    with pytest.raises(dx.ClusterError, match="a forked one cannot wait"):
        call.wait()
    queue._owner -= 1
    gate.set()


class Issuer:
    """Issues calls directly: `call` is in flight."""

    def __init__(self, call: PendingCall | None = None) -> None:
        self.closed = 0
        self.call = call
        self.taking: PendingCall | None = None

    def close(self) -> bool:
        self.closed = 1
        return self.call is not None or self.taking is not None

    def take(self) -> PendingCall | None:
        if self.call is not None:
            self.taking, self.call = self.call, None
        return self.taking

    def taken(self) -> None:
        self.taking = None

    def open(self) -> None:
        assert self.taking is None
        self.closed = 0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_call_in_flight_is_ended_before_a_submitted_one(queue: CallQueue) -> None:
    gate, seen = threading.Event(), list[str]()
    queue.direct = issuer = Issuer(PendingCall("in flight", lambda: seen.append("in flight"), issued_for=queue))
    call = PendingCall("submitted", lambda: (seen.append("submitted"), gate.wait()))
    queue.submit(call)
    assert issuer.closed == 1
    gate.set()
    call.wait()
    assert seen == ["in flight", "submitted"]
    until(lambda: issuer.closed == 0)


def test_nothing_is_issued_directly_from_a_failure_to_the_next_call_that_succeeds(queue: CallQueue) -> None:
    queue.direct = issuer = Issuer()
    failed, fine = PendingCall("failed", failing), PendingCall("fine", lambda: None)
    queue.submit(failed)
    with pytest.raises(dx.ExecutionError):
        failed.wait()
    queue.drain()
    assert issuer.closed == 1
    queue.submit(fine)
    fine.wait()
    until(lambda: issuer.closed == 0)


def test_the_queue_takes_a_call_in_flight_and_interrupts_it(queue: CallQueue) -> None:
    call = PendingCall("in flight", until_stopped(queue), issued_for=queue)
    queue.direct = Issuer(call)
    queue.interrupt()
    assert call.is_over
    assert "interrupted" in str(call.error)


def test_a_call_in_flight_is_ended_although_it_was_interrupted_before_its_turn(queue: CallQueue) -> None:
    gate, ended = threading.Event(), list[int]()
    queue.direct = Issuer(PendingCall("in flight", lambda: (gate.wait(), ended.append(1)), issued_for=queue))
    queue.take_direct()
    thread = threading.Thread(target=queue.interrupt)
    thread.start()
    gate.set()
    thread.join()
    assert ended == [1]


def test_nothing_is_issued_directly_while_the_queue_is_reserved(queue: CallQueue) -> None:
    seen = list[int]()
    queue.direct = issuer = Issuer(PendingCall("in flight", lambda: seen.append(1), issued_for=queue))
    with queue.reserved():
        assert seen == [1]
        assert issuer.closed == 1
    assert issuer.closed == 0
    queue.forbid_direct()
    assert issuer.closed == 1


def test_settling_waits_for_a_while_and_longer_where_the_queue_is_full(queue: CallQueue) -> None:
    gate = threading.Event()
    calls = [PendingCall("waits", gate.wait) for _ in range(call_queue.MOST_CALLS)]
    for call in calls[:-1]:
        queue.submit(call)
    queue.settle(0.01)
    assert not calls[0].is_over
    queue.submit(calls[-1])
    threading.Timer(0.1, gate.set).start()
    queue.settle(0.0)
    assert calls[-1].is_over


def counted(seen: list[str], name: str, **how: CallQueue) -> PendingCall:
    return PendingCall(name, lambda: seen.append(name), **how)


class Submission:
    """A queue with a call in flight without it, and a call that is submitted."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.queue = CallQueue()
        self.flying = counted(self.seen, "in flight", issued_for=self.queue)
        self.issuer = self.queue.direct = Issuer(self.flying)
        self.call = counted(self.seen, "submitted")

    def submit(self) -> None:
        self.queue.submit(self.call)
        self.call.wait()

    def reserve(self) -> None:
        with self.queue.reserved():
            self.seen.append("reserved")

    def look(self) -> None:
        assert self.queue.is_busy or self.flying.is_over
        self.queue.interrupt()
        assert self.flying.is_over

    def require_whole(self) -> None:
        """The queue goes on as if nothing had been, and no call ran twice, or while others could issue."""
        last = PendingCall("last", lambda: self.seen.append(f"last {self.issuer.closed}"))
        self.queue.submit(last)
        last.wait()
        assert self.flying.is_over
        assert self.seen.count("in flight") == 1
        assert self.seen.count("submitted") <= 1
        assert self.seen[-1] == "last 1"
        until(lambda: self.issuer.closed == 0)
        self.queue.close("the test is over")
        assert not self.queue._thread


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
@pytest.mark.parametrize("error", [Alarm, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["submit", "reserve", "look"])
def test_an_interrupt_anywhere_leaves_the_queue_whole(name: str, error: type[BaseException]) -> None:
    method = getattr(Submission, name)
    for _, found in interrupted_everywhere([call_queue], Submission, method, error=error):
        found.require_whole()


def test_a_wait_takes_the_call_over_that_an_interrupt_has_left(queue: CallQueue) -> None:
    """Its events are Python's already, and nobody else would run it."""
    call = PendingCall("in flight", lambda: None, issued_for=queue)
    queue.direct = Issuer(call)
    call.wait()
    assert call.is_over


class Told:
    """What other processes are told of a call."""

    def __init__(self, seen: list[str], name: str) -> None:
        self._seen, self._name = seen, name

    def begin(self) -> None:
        self._seen.append(f"{self._name} begins")

    def skip(self, why: BaseException, *, by_argument: bool = False) -> None:
        self._seen.append(f"{self._name} skips{' by its argument' if by_argument else ''}: {why}")


def test_other_processes_are_told_of_calls_in_the_order_of_the_queue(queue: CallQueue) -> None:
    gate, seen = threading.Event(), list[str]()
    first, second = (PendingCall(name, gate.wait, launch=Told(seen, name)) for name in "ab")
    queue.submit(first)
    assert seen[0] == "a begins"
    queue.submit(second)
    assert seen[-1] == "b begins"
    gate.set()
    second.wait()
    assert set(seen) == {"a begins", "b begins"}


def test_other_processes_are_told_of_a_call_whose_argument_failed(queue: CallQueue) -> None:
    seen = list[str]()
    needed = PendingCall("needed", failing)
    queue.submit(needed)
    call = PendingCall("call", lambda: seen.append("ran"), [needed], launch=Told(seen, "call"))
    queue.submit(call)
    with pytest.raises(dx.ExecutionError):
        call.wait()
    assert seen == ["call begins", "call skips by its argument: execution: a device failed"]


def test_other_processes_are_told_of_a_call_that_was_withdrawn(queue: CallQueue) -> None:
    seen = list[str]()
    queue.submit(PendingCall("runs", until_stopped(queue)))
    call = PendingCall("call", lambda: seen.append("ran"), launch=Told(seen, "call"))
    queue.submit(call)
    queue.interrupt()
    assert seen == ["call begins", "call skips: cluster: the call was interrupted"]


def test_a_call_that_is_refused_fails_before_its_turn_and_those_behind_it_run(queue: CallQueue) -> None:
    gate, seen = threading.Event(), list[str]()
    first, told = PendingCall("first", gate.wait), Told(seen, "second")
    queue.submit(first)
    second = PendingCall("second", lambda: seen.append("ran"), launch=told)
    third = PendingCall("third", lambda: seen.append("third ran"))
    needing = PendingCall("needing", lambda: seen.append("needing ran"), [second])
    ended = list[PendingCall]()
    for call in (second, third, needing):
        queue.submit(call)
    second.then(ended.append)
    queue.fail(told, dx.CollectiveMismatchError("another program"))
    queue.fail(told, dx.CollectiveMismatchError("again"))
    assert ended == [second]
    for call in (second, needing):
        if call is needing:
            gate.set()
        with pytest.raises(dx.CollectiveMismatchError, match="another program"):
            call.wait()
    assert (first.is_over, first.error) == (True, None)
    third.wait()
    assert seen == ["second begins", "third ran"]
    queue.drain()
    assert queue.take_unseen() is None


def test_a_call_that_has_begun_is_not_refused(queue: CallQueue) -> None:
    begun, gate = threading.Event(), threading.Event()
    told = Told([], "call")

    def run() -> None:
        begun.set()
        gate.wait()

    call = PendingCall("call", run, launch=told)
    queue.submit(call)
    begun.wait()
    queue.fail(told, dx.CollectiveMismatchError("another program"))
    assert not call.is_over
    gate.set()
    call.wait()
