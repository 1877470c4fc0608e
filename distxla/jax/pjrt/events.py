"""Events: what C++ waits for. An event is ready once its call is over; it then has the call's failure, if any."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from distxla.errors import ArgumentError
from distxla.jax.pjrt import handles
from distxla.jax.pjrt.errors import Interrupted, StatusError, new_error
from distxla.jax.pjrt.switch import SWITCH
from distxla.jax.pjrt.table import RECORDS, STATES
from distxla.runtime.host_calls import require_outside

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

    __slots__ = ("_count", "_is_taken", "_lock", "_pending", "_record", "_then", "_waits", "failure", "handle")

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
        self._then: dict[tuple[int, int], None] = {}  # once each, although an interrupt may have one registered again
        self._pending = pending
        self._waits = waits
        self.failure: BaseException | None = None
        self._record: Any = record or RECORDS["Event"](is_ready=pending is None)
        self.handle = handles.bind(self, self._record)
        if pending is not None and record is None:
            pending.then(self._over)

    def adopt(self) -> None:
        """Take over what native code has registered. May be called again where it was interrupted."""
        assert self._pending is not None
        self._is_taken = True
        while address := self._record.callbacks:
            found: Any = STATES["Callback"].from_address(address)
            self._then[found.function, found.argument] = None
            self._record.callbacks = found.next
            handles.free(address)
        self._pending.then(self._over)

    def __del__(self, free: Any = handles.free) -> None:
        if getattr(self, "_is_taken", False):  # an interrupt may come before everything else
            free(self.handle)

    @property
    def pending(self) -> Pending | None:
        """The call; None once it is over."""
        return self._pending

    def destroy(self) -> None:
        """C++ has given it up, once."""
        self._count -= 1
        if not self._count:
            handles.release(self.handle)

    def wait(self) -> BaseException | None:
        """Block until it is ready; the failure. Interrupted by Ctrl-C."""
        pending = self._pending
        if pending is None:
            return self.failure
        wait_for(pending)
        return pending.error

    def on_ready(self, callback: int, user: int) -> None:
        """Call `callback(error, user)` when it is ready."""
        if self._waits and threading.current_thread() is threading.main_thread():
            try:
                failure = self.wait()
            except Interrupted:
                _ON_READY(callback)(None, user)
                raise
            _ON_READY(callback)(_error_of(failure), user)
            return
        with self._lock:
            if self._pending is not None:
                self._then[callback, user] = None
                return
        _ON_READY(callback)(self._error(), user)

    def _over(self, pending: Pending) -> None:
        """The call has ended: run the callbacks."""
        with self._lock:
            self.failure = pending.error
            self._pending = None
            self._record.is_ready = True
            then, self._then = self._then, {}
        for callback, user in then:
            _ON_READY(callback)(self._error(), user)

    def _error(self) -> int | None:
        return _error_of(self.failure)


def _error_of(failure: BaseException | None) -> int | None:
    """The handle of an error for C++; none while an interrupt is to be raised, which errors would hide."""
    return None if failure is None or SWITCH.is_interrupting() else new_error(failure)


def wait_for(pending: Pending) -> None:
    """Block until a call is over, whether or not it failed. Interrupted by Ctrl-C; ClusterError in a host callback, for
    which calls wait."""
    if not pending.is_over:
        require_outside()
        if SWITCH.is_interrupting():  # an interrupt came in the callback's first line, or amid a native wait
            pending.interrupt()
            raise Interrupted
    try:
        pending.wait()
    except KeyboardInterrupt:
        raise Interrupted from None
    except BaseException:
        if not pending.is_over:
            raise


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
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._told: list[Callable[[Any], object]] = []
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def interrupt(self) -> None:
        """C++ ends it, nobody else."""

    def wait(self) -> None:
        self._is_over.wait()
        if self.error is not None:
            raise self.error

    def then(self, told: Callable[[Any], object]) -> None:
        with self._lock:
            if not self.is_over:
                self._told.append(told)
                return
        told(self)

    def end(self, error: BaseException | None) -> None:
        """It is over. ArgumentError where it was before."""
        with self._lock:
            if self.is_over:
                raise ArgumentError("the event has been set before")
            self.error = error
            self._is_over.set()
        for told in self._told:
            told(self)


def failed_event(failure: BaseException) -> int:
    """The handle of an event that is over, and has failed."""
    event = Event()
    event.failure = failure
    return event.handle


def event_create(args: Any) -> None:
    args.event = Event(Promise()).handle


def event_set(args: Any) -> None:
    """Event_Set."""
    event = _of(args.event)
    promise = None if event is None else event.pending
    if not isinstance(promise, Promise):
        raise ArgumentError("Event_Set: expected an event of Event_Create that was not set, found another one")
    message = handles.text(args.error_message, args.error_message_size)
    promise.end(StatusError(args.error_code, message) if args.error_code else None)


def event_destroy(args: Any) -> None:
    if (event := _of(args.event)) is not None:
        event.destroy()


def event_error(args: Any) -> int | None:
    event = _of(args.event)
    return None if event is None else _error_of(event.failure)


def event_await(args: Any) -> int | None:
    event = _of(args.event)
    return None if event is None else _error_of(event.wait())


def event_on_ready(args: Any) -> None:
    event = _of(args.event)
    if event is None:
        _ON_READY(args.callback)(None, args.user_arg)
    else:
        event.on_ready(args.callback, args.user_arg)


ENTRIES: Final = {
    "Event_Await": event_await,
    "Event_Create": event_create,
    "Event_Destroy": event_destroy,
    "Event_Error": event_error,
    "Event_OnReady": event_on_ready,
    "Event_Set": event_set,
}

__all__ = [
    "ENTRIES",
    "READY",
    "TAKING",
    "Event",
    "Pending",
    "Promise",
    "failed_event",
    "pending_event",
    "take",
    "takers",
    "wait_for",
]
