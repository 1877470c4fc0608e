"""Events: what C++ waits for. An event is ready once its call is over; it then has the call's failure, if any."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from distxla.errors import ArgumentError
from distxla.jax.pjrt import handles, late
from distxla.jax.pjrt.errors import Interrupted, StatusError, new_error
from distxla.jax.pjrt.handles import Once
from distxla.jax.pjrt.table import RECORDS, STATES
from distxla.runtime.arrays.call_queue import INTERRUPT_SECONDS
from distxla.runtime.arrays.host_calls import require_outside

TAKING: Final = threading.RLock()
"""Held while something of native code becomes Python's."""
_ON_READY: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)  # without the GIL


class Pending(Protocol):
    """A call that was issued."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however."""

    def interrupt(self) -> None:
        """End it, and all calls under way."""

    @property
    def error(self) -> BaseException | None:
        """Its failure once it is over."""

    def wait(self) -> None:
        """Block until it is over; raise its failure."""

    def then(self, told: Callable[[Any], object]) -> None:
        """Call `told` when it is over, in some thread; at once where it is."""


class Event:
    """Something that C++ waits for.

    pending: the call; None where there is nothing to wait for.  count: how often C++ gets it, and destroys it.
    waits: whether registering a callback in the main thread waits, so that Ctrl-C is handled during the wait.
    """

    __slots__ = (
        "_count",
        "_is_taken",
        "_lock",
        "_pending",
        "_record",
        "_teller",
        "_then",
        "_waits",
        "failure",
        "handle",
    )

    def __init__(
        self,
        pending: Pending | None = None,
        *,
        count: int = 1,
        waits: bool = False,
        record: ctypes.Structure | None = None,
    ) -> None:
        """record: that of native code, which this takes over: `adopt` has to follow."""
        self._is_taken = False  # nor is there a record to free, where an interrupt ends this
        self._count = count
        self._lock = threading.Lock()
        # once each, although an interrupt may have one registered again; with an element once it was called
        self._then: dict[tuple[int, int], list[object]] = {}
        self._teller: int | None = None  # the thread that calls them
        self._pending = pending
        self._waits = waits
        self.failure: BaseException | None = None
        self._record: Any = record or RECORDS["Event"](is_ready=pending is None)
        self.handle = ctypes.addressof(self._record)
        if record is None:
            handles.bind(self, self._record)
        else:
            handles.objects[self.handle] = self, record
        if pending is not None and record is None:
            pending.then(self._over)

    def adopt(self) -> None:
        """Take over what native code has registered. May be called again where it was interrupted."""
        assert self._pending is not None
        self._is_taken = True
        while address := self._record.callbacks:
            found: Any = STATES["Callback"].from_address(address)
            self._then[found.function, found.argument] = []
            self._record.callbacks = found.next
            handles.free(address)
        self._pending.then(self._over)

    def __del__(self, free: Any = handles.free) -> None:
        if getattr(self, "_is_taken", False):  # an interrupt may come before everything else
            self._is_taken = False
            free(self.handle)

    @property
    def pending(self) -> Pending | None:
        """The call; None once it is over."""
        return self._pending

    def destroy(self, once: Once) -> None:
        """C++ has given it up, once."""
        if not once.is_done:
            self._count, once.is_done = self._count - 1, True
        if not self._count:
            handles.release(self.handle)

    def wait(self) -> BaseException | None:
        """Block until it is ready; the failure. Interrupted by Ctrl-C."""
        pending = self._pending
        if pending is None:
            return self.failure
        wait_for(pending)
        return pending.error

    def on_ready(self, callback: int, user: int, done: list[object]) -> None:
        """Call `callback(error, user)` when it is ready. done: gets an element as soon as that was done, or will be."""
        if self._waits and threading.current_thread() is threading.main_thread():
            try:
                failure = self.wait()
            except Interrupted:
                _call_back(callback, None, user, done)
                raise
            _call_back(callback, _error_of(failure), user, done)
            return
        with self._lock:
            if self._pending is not None:
                self._then[callback, user], done[:] = [], [True]
                return
        _call_back(callback, self._error(), user, done)

    def _over(self, pending: Pending) -> None:
        """The call has ended: run the callbacks. May be called again where it was interrupted."""
        thread = threading.get_ident()
        with self._lock:
            self.failure = pending.error
            self._pending = None
            self._record.is_ready = True
            self._teller = self._teller or thread
        if self._teller == thread:
            for (callback, user), done in self._then.items():
                if not done:
                    _call_back(callback, self._error(), user, done)

    def _error(self) -> int | None:
        return _error_of(self.failure)


def _call_back(callback: int, error: int | None, user: int, done: list[object]) -> None:
    """C code calls it and lengthens `done`: no handler runs in between."""
    done.extend(map(_ON_READY(callback), [error], [user]))


def _error_of(failure: BaseException | None) -> int | None:
    """The handle of an error for C++; none while an interrupt is to be raised, which errors would hide."""
    return None if failure is None or late.is_late() else new_error(failure)


def wait_for(pending: Pending) -> None:
    """Block until a call is over, whether or not it failed. Interrupted where a signal handler raises, which by Ctrl-C
    ends the calls under way; ClusterError in a host callback, for which calls wait."""
    try:
        if not pending.is_over:
            require_outside()
            _require_no_interrupt(pending)  # one came in the callback's first line, or amid a native wait
        pending.wait()
    except Interrupted:
        raise
    except BaseException as error:
        if late.is_of_handler(error):
            late.defer(error)
            _require_no_interrupt(pending)
        if not pending.is_over:
            raise


def _require_no_interrupt(pending: Pending) -> None:
    """Interrupted while an exception is to be raised. By Ctrl-C the calls under way are over then."""
    if late.is_late():
        if late.ends_calls():
            pending.interrupt()
        raise Interrupted


READY: Final = Event()
"""The event of all that is done at once; C++ may destroy it as often as it likes."""


def take(gate: Any, pending: Pending) -> None:
    """Take over the events of a call of native code, those that were not yet. gate: its record. With TAKING."""
    while first := gate.taken_events:
        record: Any = RECORDS["Event"].from_address(first)
        following = record.next
        event = handles.find(first)
        if event is None:
            event = Event(pending, count=record.uses - 1, waits=record.waits, record=record)
        event.adopt()
        gate.taken_events = following


takers: Final[dict[int, Callable[[], object]]] = {}
"""By address of a gate: has the call queue take over the call in flight."""


def _of(handle: int) -> Event | None:
    """The event of a handle; one of native code is Python's from then on. None for one of native code that is ready."""
    found = handles.find(handle)
    if found is None:
        record: Any = RECORDS["Event"].from_address(handle)
        takers[record.gate]()  # if it is not native, an interrupt has kept it from being taken over
        with TAKING:  # of events that are being taken over
            found = None if record.is_native else handles.of(handle)
    assert isinstance(found, Event | None)
    return found


def pending_event(pending: Pending | None, *, count: int = 1, waits: bool = False) -> int:
    """The handle of an event for a call, or for none."""
    if pending is None or (pending.is_over and pending.error is None):
        return READY.handle
    return Event(pending, count=count, waits=waits).handle


class Promise:
    """What an event of C++'s own waits for: C++ says when it is over."""

    def __init__(self) -> None:
        self.is_over = False
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._told: list[Callable[[Any], object]] = []

    def interrupt(self) -> None:
        """C++ ends it, nobody else."""

    def wait(self) -> None:
        while not self.is_over:
            # Python doesn't wake for a signal that comes just before it blocks: without an end it would wait on
            if self._done.acquire(timeout=INTERRUPT_SECONDS):
                self._done.release()
        if self.error is not None:
            raise self.error

    def then(self, told: Callable[[Any], object]) -> None:
        with self._lock:
            if not self.is_over:
                self._told.append(told)
                return
        told(self)

    def end(self, error: BaseException | None, once: Once) -> None:
        """It is over. ArgumentError where it was before. May be called again where it was interrupted."""
        with self._lock:
            if not once.is_done:
                if self.is_over:
                    raise ArgumentError("the event has been set before")
                self.error, self.is_over, once.is_done = error, True, True
                self._done.release()
        for told in self._told:
            told(self)


def failed_event(failure: BaseException) -> int:
    """The handle of an event that is over, and has failed."""
    event = Event()
    event.failure = failure
    return event.handle


def event_create(args: Any) -> None:
    args.event = Event(Promise()).handle


class Setting:
    """Event_Set; called again where an interrupt has come, it goes on behind what is done."""

    def __init__(self) -> None:
        self._promise: Promise | None = None
        self._once = Once()

    def __call__(self, args: Any) -> None:
        if self._promise is None:
            event = _of(args.event)
            promise = None if event is None else event.pending
            if not isinstance(promise, Promise):
                raise ArgumentError("Event_Set: expected an event of Event_Create that was not set, found another one")
            self._promise = promise
        message = handles.text(args.error_message, args.error_message_size)
        self._promise.end(StatusError(args.error_code, message) if args.error_code else None, self._once)


def event_destroy(args: Any, once: Once) -> None:
    event = handles.find(args.event) if once.is_done else _of(args.event)
    if event is not None:
        event.destroy(once)


def event_error(args: Any) -> int | None:
    event = _of(args.event)
    return None if event is None else _error_of(event.failure)


def event_await(args: Any) -> int | None:
    event = _of(args.event)
    return None if event is None else _error_of(event.wait())


class Registration:
    """Event_OnReady; called again where an interrupt has come, it calls back only once."""

    def __init__(self) -> None:
        self._done: list[object] = []

    def __call__(self, args: Any) -> None:
        if self._done:
            return
        event = _of(args.event)
        if event is None:
            _call_back(args.callback, None, args.user_arg, self._done)
        else:
            event.on_ready(args.callback, args.user_arg, self._done)


ONCE: Final = {"Event_Destroy": event_destroy}
ENTRIES: Final = {
    "Event_Await": event_await,
    "Event_Create": event_create,
    "Event_Error": event_error,
    "Event_OnReady": lambda args: Registration()(args),
    "Event_Set": lambda args: Setting()(args),
}

__all__ = [
    "ENTRIES",
    "ONCE",
    "READY",
    "TAKING",
    "Event",
    "Pending",
    "Promise",
    "Registration",
    "Setting",
    "failed_event",
    "pending_event",
    "take",
    "takers",
    "wait_for",
]
