"""Stop requests of a command: Ctrl-C, SIGTERM, the time limit.

A signal handler's exception arrives at any line of anybody's code. There it may be wrapped (`__set_name__`), replaced
(`except Exception` of an import) or dropped (`__del__`, callbacks of C code). So the exception only unwinds the main
thread: what was asked for first is kept in `stops.first`, and the report of a command looks there before it looks at
the exception that arrived. Where the exception was dropped it is raised again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from distxla import clock
from distxla.runtime.values.interrupts import at_end_of_step, is_deferred

if TYPE_CHECKING:
    from distxla.errors import TimeLimitError

AGAIN_S = 0.02  # between looks whether the exception was dropped, or may be raised by now
DROPPED_S = 0.1  # after it was raised: before, it may be on its way through C code, which shows nowhere
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # exit statuses


class Expired(BaseException):
    """The time limit has run out. A BaseException, so that no `except Exception` catches it."""


class StopRequests:
    """Those of this process. Handlers run in the main thread only, between two instructions of Python.

    first: what was asked for first: `INTERRUPTED`, `TERMINATED`, or the error of the time limit; None: nothing yet.
    rung_at: when the alarm last found the main thread between two instructions (clock.now()).
    """

    def __init__(self) -> None:
        self._depth = 0
        self._reset()

    def _reset(self) -> None:
        self.first: int | TimeLimitError | None = None
        self.rung_at = 0.0
        self._is_reporting = False
        self._raised: BaseException | None = None
        self._raised_at = 0.0
        self._expired: Callable[[], TimeLimitError | None] | None = None
        self._alarm: _Alarm | None = None
        self._teller = threading.Lock()

    def begin(self) -> None:
        """From here on requests are kept, and unwind the main thread. May be nested; in other threads: nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth > 1:
            return
        self._reset()
        self._former_hook: Callable[[Any], Any] = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        self._former: dict[int, Any] = {}
        for number, handler in ((signal.SIGINT, self._interrupt), (signal.SIGTERM, self._terminate)):
            former = signal.getsignal(number)
            if former not in (signal.SIG_IGN, None):  # a shell that runs this in the background turns Ctrl-C off
                self._former[number] = former
                signal.signal(number, handler)

    def end(self) -> None:
        """Every signal has the action again that it had before `begin`."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth:
            return
        for number, handler in self._former.items():
            signal.signal(number, handler)
        if self._alarm is not None:
            self._alarm.end()
        sys.unraisablehook = self._former_hook

    @contextmanager
    def handled(self) -> Iterator[None]:
        """From `begin` to `end`."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def report(self) -> None:
        """From here on the command only tells how it has ended, and nothing is raised any more. The second signal has
        its default action: nobody may read what is told."""
        self._is_reporting = True
        if self._alarm is not None:
            self._alarm.stop()

    def may_tell(self) -> bool:
        """Whether the caller, of two threads, is the one that tells how the command has ended. Asked once by each."""
        return self._teller.acquire(blocking=False)

    @contextmanager
    def limited(self, seconds: float, expired: Callable[[], TimeLimitError | None]) -> Iterator[None]:
        """`expired` is asked so many seconds from now, and every AGAIN_S from then on, until it gives an error."""
        outer, self._expired = self._expired, expired
        self._ring_after(seconds)
        try:
            yield
        finally:
            self._expired = outer
            if outer is not None:
                self._ring_after(AGAIN_S)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked(number, INTERRUPTED):
            self._raise(KeyboardInterrupt())

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        is_second = self.first == TERMINATED
        if not self._is_asked(number, TERMINATED) or self._raised is not None:
            return  # further ones do not disturb the unwinding
        if is_deferred() and not is_second:
            at_end_of_step(self._terminate_late)
        else:
            self._raise(SystemExit(TERMINATED))

    def _terminate_late(self) -> None:
        if self._raised is None:
            self._raise(SystemExit(TERMINATED))

    def _is_asked(self, number: int, status: int) -> bool:
        """Keep the request. Whether it is to be raised."""
        if self._is_reporting:
            signal.signal(number, signal.SIG_DFL)
            return False
        if self.first is None:
            self.first = status
        return True

    def _raise(self, error: BaseException) -> NoReturn:
        self._raised, self._raised_at = error, clock.now()
        self._ring_after(AGAIN_S)
        raise error

    def _ring_after(self, seconds: float) -> None:
        if self._alarm is None:
            self._alarm = _Alarm(self._ring)
        self._alarm.set(seconds)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rung_at = clock.now()
        if self._is_reporting or is_deferred():
            return
        if self.first is None:
            self.first = None if self._expired is None else self._expired()
            if self.first is not None:
                self._raise(Expired())
        elif self._raised is not None and self._was_dropped():
            self._raise(type(self._raised)(*self._raised.args))

    def _was_dropped(self) -> bool:
        """Whether the main thread goes on as if nothing had been raised."""
        return clock.now() >= self._raised_at + DROPPED_S and not self._is_of_request(sys.exception())

    def _is_of_request(self, error: BaseException | None) -> bool:
        """Whether it is, or came of, what was raised here: in a `finally`, an `except` or an `__exit__` the main thread
        handles such an error."""
        pending, seen = [error], set[int]()
        while pending:
            found = pending.pop()
            if found is None or id(found) in seen:
                continue
            if found is self._raised:
                return True
            seen.add(id(found))
            pending += [found.__cause__, found.__context__]
        return False

    def _unraisable(self, found: Any) -> None:
        """Python drops what a destructor raises, and prints it: what was raised here is raised again instead."""
        if not self._is_of_request(found.exc_value):
            self._former_hook(found)


class _Alarm:
    """The alarm of this process. Another one that was pending rings at its own time, or once this one has ended."""

    def __init__(self, ring: Callable[[int, FrameType | None], None]) -> None:
        self._former = signal.signal(signal.SIGALRM, ring)
        self._left, self._interval = signal.setitimer(signal.ITIMER_REAL, 0)
        self._begin = clock.now()  # not before: the other one would ring too early by what lies between

    def set(self, seconds: float) -> None:
        """It rings in so many seconds, and every AGAIN_S from then on."""
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, seconds), AGAIN_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def end(self) -> None:
        self.stop()
        signal.signal(signal.SIGALRM, self._former)
        if self._left:
            left = self._left - (clock.now() - self._begin)
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left), self._interval)


stops = StopRequests()

__all__ = ["INTERRUPTED", "TERMINATED", "Expired", "StopRequests", "stops"]
