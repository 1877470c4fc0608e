"""Calls under way: a thread runs them in order, so that their callers need not wait for the results."""

from __future__ import annotations

import copy
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from distxla.errors import ClusterError, DistxlaError, InternalError
from distxla.machine.shortages import started_thread

MOST_CALLS = 32  # under way at once; a further one waits until half are over
MOST_BYTES = 64 << 20  # of the results of calls under way, on each device; a further call waits likewise
INTERRUPT_SECONDS = 0.5  # a waiting thread looks for Ctrl-C this often
INTERRUPTED = "the call was interrupted"


class DirectIssuer(Protocol):
    """Issues calls without the queue while that has none, one at a time. A method that an interrupt may have ended
    early may be called again."""

    def close(self) -> bool:
        """Issue none from now on; whether one is in flight, or an interrupt came before `taken`."""

    def take(self) -> PendingCall | None:
        """The call in flight, which is the queue's to end from now on; the same one until `taken`."""

    def taken(self) -> None:
        """The queue has what `take` has given."""

    def open(self) -> None:
        """Issue calls again."""


class _NoDirectIssuer:
    """Issues nothing."""

    def close(self) -> bool:
        return False

    def take(self) -> None: ...

    def taken(self) -> None: ...

    def open(self) -> None: ...


class Launch(Protocol):
    """What other processes are told of a call in which they take part. Both methods may be called again; neither
    raises or blocks."""

    def begin(self) -> None:
        """The call has its place in the queue."""

    def skip(self, why: BaseException, *, by_argument: bool = False) -> None:
        """It will never run. by_argument: since a call failed whose result it takes."""


class PendingCall:
    """A call that was submitted. Its results are there once it `is_over` and `error` is None.

    name: of its program.  run: runs it and blocks until it has ended; called once, in the queue's thread.  needs: calls
    whose results it takes.  result_bytes: of its results, on each device.  is_issued: whether it is in flight already,
    and `run` ends it.  has_begun: whether the queue has come to it.  has_run: whether the queue is done with it.
    failed_first: the call whose failure this one has: itself, or one that it needs; None where it has not failed, or
    was interrupted.  launch: where other processes take part.
    """

    __slots__ = (
        "_done",
        "_needs",
        "_queue",
        "_run",
        "_then",
        "error",
        "failed_first",
        "has_begun",
        "has_run",
        "is_issued",
        "is_over",
        "is_stopped",
        "launch",
        "name",
        "result_bytes",
    )

    def __init__(
        self,
        name: str,
        run: Callable[[], object],
        needs: Sequence[PendingCall] = (),
        result_bytes: int = 0,
        *,
        issued_for: CallQueue | None = None,
        launch: Launch | None = None,
    ) -> None:
        """issued_for: of a call that was issued directly, the queue that is to end it."""
        self.name = name
        self.launch = launch
        self.is_issued = issued_for is not None
        self.result_bytes = result_bytes
        self.is_over = False
        self.has_begun = self.has_run = False
        self.is_stopped = False
        self.error: BaseException | None = None
        self.failed_first: PendingCall | None = None
        self._run: Callable[[], object] | None = run
        self._needs = needs
        self._queue = issued_for
        self._then: list[Callable[[PendingCall], object]] = []
        self._done = threading.Lock()
        self._done.acquire()

    def wait(self) -> None:
        """Block until the call is over; raise its failure, each time as an exception of its own.

        Ctrl-C ends the calls under way and raises KeyboardInterrupt.
        """
        if not self.is_over:
            if self._queue is None:
                raise InternalError(f"the call of {self.name} was never submitted")
            self._queue.wait(self)
        if self.error is not None:
            if self._queue is not None and self.failed_first is not None:
                self._queue.note_seen(self.failed_first)
            raise _again(self.error)

    @property
    def is_submitted(self) -> bool:
        """Whether a queue has it, or had it."""
        queue = self._queue
        if queue is None:
            return False
        with queue._lock:
            return self.has_run or self in queue._calls

    def interrupt(self) -> None:
        """End the calls under way, as Ctrl-C does while one waits."""
        if self._queue is not None:
            self._queue.interrupt()

    def then(self, told: Callable[[PendingCall], object]) -> None:
        """Call `told` once the call is over: in the queue's thread, or at once. It must not wait for other calls."""
        self._then.append(told)
        if self.is_over:
            self._tell()

    def _block(self) -> None:
        """Block until it is over."""
        while not self.is_over:
            # Python doesn't wake for a signal that comes just before it blocks: without an end it would wait on
            if self._done.acquire(timeout=INTERRUPT_SECONDS):
                self._done.release()

    def _outcome(self) -> BaseException | None:
        """Run it, unless a call that it needs has failed; the failure."""
        for call in self._needs:
            if call.error is not None:
                self.failed_first = call.failed_first
                error = _again(call.error)
                error.add_note(f"{self.name} was not run: it takes a result of {call.name}, which failed")
                self._skip(error, by_argument=True)
                return error
        assert self._run is not None
        try:
            self._run()
        except BaseException as error:
            self.failed_first = None if self.is_stopped else self
            return error
        return None

    def _skip(self, why: BaseException, *, by_argument: bool = False) -> None:
        if self.launch is not None:
            self.launch.skip(why, by_argument=by_argument)

    def _let_go(self) -> None:
        """Give up the memory that it holds: arguments and results."""
        self._run, self._needs = None, ()

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self.is_over = True
        self._done.release()
        self._tell()

    def _tell(self) -> None:
        while self._then:
            try:
                told = self._then.pop()
            except IndexError:  # taken by the other thread
                return
            told(self)


class _Reservation:
    """Keeps `direct` closed while it exists. One that an interrupt kept from being taken back ends with its last
    reference."""

    __slots__ = ("__weakref__",)


class CallQueue:
    """Runs calls in the order of their submission, in a thread of its own that the first call starts.

    Threads may submit; a call that is submitted while a call runs in the queue's own thread is refused.
    direct: issues calls while the queue has none; it is closed while the queue has calls, and from a failure until the
    next call that has not failed: devices may still compute.

    A signal handler may raise at any line of any method. The next call does what was left undone. Where in doubt
    `direct` stays closed: calls then take longer, while two threads could issue at once if it were open too early.
    """

    def __init__(self, require_outside: Callable[[], None] = lambda: None) -> None:
        """require_outside: raises ClusterError in further threads for which a call that runs waits."""
        self._require_outside = require_outside
        self._lock = threading.Lock()  # of the fields below
        self._calls: deque[PendingCall] = deque()  # under way; the first one may be running
        self._ended = ""  # why no call is taken any more
        self._has_closed = False  # whether `direct` is closed, and nothing of it in flight
        self._has_failed = False  # the newest call that has ended
        self._reservations: dict[int, weakref.ref[_Reservation]] = {}  # for which `direct` is closed
        self.direct: DirectIssuer = _NoDirectIssuer()
        self._forever = _Reservation()
        self._unseen: PendingCall | None = None
        self._work: queue.SimpleQueue[bool] = queue.SimpleQueue()  # whether there is a call, or the end
        self._thread: threading.Thread | None = None
        self._serves = threading.Lock()  # held by the thread
        self._owner = os.getpid()

    def await_room(self, result_bytes: int) -> None:
        """Block while too many calls are under way for another one with such results: to be called before memory is
        allocated for these, which calls under way may give back. Raises as `submit`."""
        self._require_other_thread()
        while (older := self._in_the_way(result_bytes)) is not None:
            self.wait(older)

    def submit(self, call: PendingCall) -> None:
        """Put the call behind all others. Blocks while too many are under way.

        ClusterError where the queue was closed, and in the thread that runs the calls.
        """
        self._require_other_thread()
        call._queue = self
        while (older := self._in_the_way(call.result_bytes, call)) is not None:
            self.wait(older)

    def _in_the_way(self, result_bytes: int, call: PendingCall | None = None) -> PendingCall | None:
        """The call to wait for before there is room for such results; where there is, `call` is under way then."""
        with self._lock:
            if self._ended:
                raise ClusterError(self._ended)
            calls = self._calls
            if call is not None:
                self._take_direct()
            used = sum(other.result_bytes for other in calls)
            if len(calls) >= MOST_CALLS or (calls and used + result_bytes > MOST_BYTES):
                later = list(calls)[len(calls) // 2 :]  # waking up for each one would cost more
                return _unfinished(later) or _unfinished(calls) or calls[0]
            if call is not None:
                self._append(call)
        return None

    def _append(self, call: PendingCall) -> None:
        if self._thread is None:
            self._start()
        # Ctrl-C may come between any two of these: a wake-up without a call is harmless, the reverse is not
        self._work.put(True)
        self._calls.append(call)
        if call.launch is not None:
            for other in self._calls:  # also one before whose launch an interrupt came
                if other.launch is not None:
                    other.launch.begin()

    def _take_direct(self) -> None:
        """Close `direct` unless that was done; its call in flight is under way here then. With the lock."""
        if not self._has_closed:
            if self.direct.close():
                self._append_direct()
            self._has_closed = True

    def _append_direct(self) -> None:
        call = self.direct.take()
        if call is not None:
            call._queue = self
            if not call.has_run and call not in self._calls:  # an interrupt may have ended an earlier try
                self._append(call)
        self.direct.taken()

    def _release_direct(self) -> None:
        """Open `direct` where nothing keeps it closed, and no interrupt has left its call half taken. With the lock."""
        kept = [kept for kept in list(self._reservations.values()) if kept() is not None]
        if self._has_closed and not (self._calls or self._ended or self._has_failed or kept):
            self._has_closed = False
            self.direct.open()

    def take_direct(self) -> None:
        """Have the queue end the call that is in flight without it."""
        with self._lock:
            if not self._has_closed:
                self._take_direct()
                self._release_direct()

    def settle(self, seconds: float) -> None:
        """Block until no call is under way, so that calls may be issued directly: for so many seconds at most, but as
        long as it takes where there is no room for another call. Ctrl-C as `PendingCall.wait`."""
        with self._lock:
            last = _unfinished(reversed(self._calls))
            is_full = len(self._calls) >= MOST_CALLS
        if last is not None and is_full:
            self.wait(last)
        elif last is not None and last._done.acquire(timeout=seconds):
            last._done.release()

    def forbid_direct(self) -> None:
        """Have no call issued directly any more. Blocks until the calls under way are over."""
        with self._lock:
            self._reserve(self._forever)
        self.drain()

    def _reserve(self, reservation: _Reservation) -> None:
        """Keep `direct` closed as long as the reservation exists, or until it is taken back. With the lock."""
        self._reservations[id(reservation)] = weakref.ref(reservation)
        self._take_direct()

    def _take_back(self, reservation: _Reservation) -> None:
        """With the lock."""
        self._reservations.pop(id(reservation), None)
        self._release_direct()

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """No call is issued directly within, and none is in flight at the beginning. Blocks until the calls under way
        are over. Raises as `submit`."""
        self._require_outside()
        reservation = _Reservation()
        try:
            with self._lock:
                self._reserve(reservation)
            self.drain()
            yield
        finally:
            with self._lock:
                self._take_back(reservation)

    def wait(self, call: PendingCall) -> None:
        """Block until a call that was submitted is over, whether or not it failed. Ctrl-C as `PendingCall.wait`."""
        if call.is_over:
            return
        try:
            self._require_other_thread()
            self.take_direct()  # the call may be one that an interrupt has left half taken
            call._block()
        except KeyboardInterrupt:
            self.interrupt()
            raise

    def drain(self) -> None:
        """Block until no call is under way; within a call of the queue return at once. Ctrl-C as `PendingCall.wait`."""
        self.take_direct()
        if self._calls and not self._is_own_thread():
            with self._lock:
                calls = list(self._calls)
            for call in reversed(calls):  # mostly all are over with the last one; `fail` may have ended that before
                self.wait(call)

    def interrupt(self) -> None:
        """End all calls under way, which then fail with ClusterError; blocks until the one that runs has ended."""
        self.take_direct()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.is_stopped = True
        if calls and not self._is_own_thread():
            for call in calls:
                call._block()

    @property
    def is_busy(self) -> bool:
        """Whether calls are under way."""
        self.take_direct()
        return bool(self._calls)

    @property
    def is_full(self) -> bool:
        """Whether a further call waits for one of those under way."""
        return self._in_the_way(0) is not None

    def fail(self, launch: Launch, error: BaseException) -> None:
        """End the call with this launch before its turn: it keeps its place, where nothing is run. Nothing happens once
        it has begun."""
        with self._lock:
            call = next((call for call in self._calls if call.launch is launch), None)
            if call is None or call.has_begun:
                return
            call.has_begun, call.failed_first, call.error = True, call, error
            self._unseen = self._unseen or call
        call._end(error)

    def stop_reason(self) -> ClusterError | None:
        """The error with which the call that this thread runs should end now; None while it may go on."""
        if not self._is_own_thread() or not self._calls[0].is_stopped:
            return None
        return ClusterError(INTERRUPTED)

    def note_seen(self, call: PendingCall) -> None:
        """A caller gets the failure of this call."""
        if self._unseen is call:
            self._unseen = None

    def take_unseen(self) -> BaseException | None:
        """The first failure that no caller has got; then forgotten."""
        call, self._unseen = self._unseen, None
        return None if call is None else call.error

    def close(self, why: str) -> None:
        """Take no calls any more, end those under way, and wait for the thread. Twice is fine."""
        with self._lock:
            self._take_direct()
            self._ended = self._ended or why
        self.interrupt()
        if self._thread is not None and not self._is_own_thread():
            self._work.put(False)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="distxla-calls", daemon=True)
        started_thread(thread, "the call could not be issued")
        if self._thread is None:
            self._thread = thread

    def _serve(self) -> None:
        if not self._serves.acquire(blocking=False):
            return  # an interrupt came before `_start` could note the thread that serves already
        self._thread = threading.current_thread()
        while self._work.get():
            with self._lock:
                call = self._calls[0] if self._calls else None
                is_refused = call is not None and call.has_begun
                if call is not None:
                    call.has_begun = True
            if call is None:
                continue
            error = call.error if is_refused else self._outcome(call)
            call._let_go()  # while it is under way: who has drained the queue counts on the memory
            with self._lock:
                call.has_run = True
                self._calls.popleft()
                self._has_failed = error is not None
                if error is not None and self._unseen is None and call.failed_first is call and not is_refused:
                    self._unseen = call
                if error is None:
                    self._release_direct()
            if not is_refused:
                call._end(error)
            call = error = None  # the traceback of a failure keeps the program and its arrays: not until the next call

    @staticmethod
    def _outcome(call: PendingCall) -> BaseException | None:
        if not call.is_stopped or call.is_issued:
            return call._outcome()
        error = ClusterError(INTERRUPTED)
        call._skip(error)
        return error

    def _is_own_thread(self) -> bool:
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def _require_other_thread(self) -> None:
        if self._owner != os.getpid():
            raise ClusterError("the cluster belongs to the process that opened it: a forked one cannot wait for calls")
        self._require_outside()
        if self._is_own_thread():
            raise ClusterError("a call cannot wait for another call of the cluster that runs it")


def _unfinished(calls: Iterable[PendingCall]) -> PendingCall | None:
    """The first one that is not over."""
    return next((call for call in calls if not call.is_over), None)


def _again(error: BaseException) -> BaseException:
    """The error once more: an exception that is raised in several places needs a traceback in each."""
    if not isinstance(error, DistxlaError):
        return error
    found = copy.copy(error)
    found.__cause__ = error.__cause__
    if notes := getattr(error, "__notes__", None):
        found.__notes__ = list(notes)
    return found


__all__ = ["CallQueue", "Launch", "PendingCall"]
