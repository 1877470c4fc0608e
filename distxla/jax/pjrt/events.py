"""Events: what C++ waits for. An event is ready once its call is over; it then has the call's failure, if any."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from distxla.jax.pjrt import handles
from distxla.jax.pjrt.errors import Interrupted, new_error
from distxla.jax.pjrt.switch import SWITCH
from distxla.jax.pjrt.table import RECORDS
from distxla.runtime.host_calls import require_outside

_ON_READY: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)  # without the GIL


class Pending(Protocol):
    """A call that was issued."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however."""

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

    __slots__ = ("_count", "_lock", "_pending", "_record", "_then", "_waits", "failure", "handle")

    def __init__(self, pending: Pending | None = None, *, count: int = 1, waits: bool = False) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._then: list[tuple[int, int]] = []
        self._pending = pending
        self._waits = waits
        self.failure: BaseException | None = None
        self._record = RECORDS["Event"](None, pending is None)
        self.handle = handles.bind(self, self._record)
        if pending is not None:
            pending.then(self._over)

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
                self.wait()
            except Interrupted:
                _ON_READY(callback)(None, user)
                raise
        with self._lock:
            if self._pending is not None:
                self._then.append((callback, user))
                return
        _ON_READY(callback)(self._error(), user)

    def _over(self, pending: Pending) -> None:
        """The call has ended: run the callbacks."""
        with self._lock:
            self.failure = pending.error
            self._pending = None
            self._record.is_ready = True
            then, self._then = self._then, []
        for callback, user in then:
            _ON_READY(callback)(self._error(), user)

    def _error(self) -> int | None:
        return _error_of(self.failure)


def _error_of(failure: BaseException | None) -> int | None:
    """The handle of an error for C++; none while an interrupt is to be raised, which errors would hide."""
    return None if failure is None or SWITCH.interrupts else new_error(failure)


def wait_for(pending: Pending) -> None:
    """Block until a call is over, whether or not it failed. Interrupted by Ctrl-C; ClusterError in a host callback, for
    which calls wait."""
    if not pending.is_over:
        require_outside()
    try:
        pending.wait()
    except KeyboardInterrupt:
        raise Interrupted from None
    except BaseException:
        if not pending.is_over:
            raise


READY: Final = Event()
"""The event of all that is done at once; C++ may destroy it as often as it likes."""


def pending_event(pending: Pending | None, *, count: int = 1, waits: bool = False) -> int:
    """The handle of an event for a call, or for none."""
    if pending is None or (pending.is_over and pending.error is None):
        return READY.handle
    return Event(pending, count=count, waits=waits).handle


def event_destroy(args: Any) -> None:
    if args.event and args.event != READY.handle:
        handles.of(args.event).destroy()


def event_error(args: Any) -> int | None:
    return _error_of(handles.of(args.event).failure)


def event_await(args: Any) -> int | None:
    return _error_of(handles.of(args.event).wait())


def event_on_ready(args: Any) -> None:
    handles.of(args.event).on_ready(args.callback, args.user_arg)


ENTRIES: Final = {
    "Event_Await": event_await,
    "Event_Destroy": event_destroy,
    "Event_Error": event_error,
    "Event_OnReady": event_on_ready,
}

__all__ = ["ENTRIES", "READY", "Event", "Pending", "pending_event", "wait_for"]
