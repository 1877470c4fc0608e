"""A call in flight, from its first wait to its result or its error: an event in, the next step out. Nothing here waits.

While slices of time pass, WAIT, ASK, LOOK, CLOCK, NOTICE and again WAIT; then RETURN, once every host has come back, or
REPORT, END and RAISE, once an error was found.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from distxla.runtime.calls.call_end import CallEnd, Happened


class Met(Enum):
    """An event. `aborted` beside it: whether the abort flag is set, since a device or a host has failed."""

    BACK = auto()  # the host that was awaited has done its part
    ABORTED = auto()  # the wait for it ended because something has failed, on any host
    AGAIN = auto()  # the wait's slice of time has passed, or news came
    FOUND = auto()  # what the step was to find
    NOTHING = auto()  # the step has not found it
    DONE = auto()  # a step that finds nothing
    RAISED = auto()  # an exception came, in the step or between two: an interrupt, or what has failed in it


class Do(Enum):
    """A step."""

    WAIT = auto()  # for the host, for a slice of time
    ASK = auto()  # for a reason to end the call now
    LOOK = auto()  # for devices that can never go on
    SETTLE = auto()  # look again until the other devices have stopped, too
    CLOCK = auto()  # whether the time limit is over
    NOTICE = auto()  # tell of devices that others have waited for long
    REPORT = auto()  # find out all about the error, before any wait is released
    END = auto()  # the call on all hosts (call_end.py)
    RAISE = auto()  # the error
    RETURN = auto()  # the result


class Error(Enum):
    """What a call that does not end well raises."""

    FAILURE = auto()  # of a device or a host
    DEADLOCK = auto()
    REASON = auto()  # the one that was asked for
    LIMIT = auto()  # the time limit
    EXCEPTION = auto()  # the one that came


class CallStep(NamedTuple):
    """What to do. host: that is awaited.  error: that was found.  how: the event with which the end begins."""

    do: Do
    host: int = 0
    error: Error | None = None
    how: Happened | None = None


_NEXT: dict[tuple[Do, Met], Do | Error] = {
    (Do.WAIT, Met.BACK): Do.RETURN,  # behind the last host
    (Do.WAIT, Met.ABORTED): Error.FAILURE,
    (Do.WAIT, Met.AGAIN): Do.ASK,
    (Do.ASK, Met.FOUND): Error.REASON,
    (Do.ASK, Met.NOTHING): Do.LOOK,
    (Do.LOOK, Met.FOUND): Do.SETTLE,
    (Do.LOOK, Met.NOTHING): Do.CLOCK,
    (Do.SETTLE, Met.DONE): Error.DEADLOCK,
    (Do.CLOCK, Met.FOUND): Error.LIMIT,
    (Do.CLOCK, Met.NOTHING): Do.NOTICE,
    (Do.NOTICE, Met.DONE): Do.WAIT,
    (Do.REPORT, Met.DONE): Do.END,
    (Do.END, Met.DONE): Do.RAISE,
}

# instead, where the abort flag is set: devices are stuck because another one has failed, which the next wait tells
_NEXT_ABORTED: dict[tuple[Do, Met], Do | Error] = {
    (Do.WAIT, Met.BACK): Error.FAILURE,
    (Do.LOOK, Met.FOUND): Do.CLOCK,
    (Do.SETTLE, Met.DONE): Do.WAIT,
}

_HOW = {
    Error.FAILURE: Happened.FAILED,
    Error.DEADLOCK: Happened.FAILED,
    Error.REASON: Happened.STOPPED,
    Error.LIMIT: Happened.STOPPED,
    Error.EXCEPTION: Happened.STOPPED,
}


class CallInFlight:
    """One call on so many ends of hosts, which are awaited one after the other. It may be made at the first event that
    is not BACK: `awaited` is the host that had it.

    As soon as an error is found the call's end has begun: whatever comes between two steps, the next call finds it.
    state: the step in progress.
    """

    def __init__(self, hosts: int, end: CallEnd, awaited: int = 0) -> None:
        self._last = hosts - 1
        self._end = end
        self.state = CallStep(Do.WAIT, awaited)

    def handle(self, met: Met, *, aborted: bool = False) -> CallStep:
        """The next step. None follows RETURN; what follows RAISE is for an exception to come instead of the error."""
        if met is Met.RAISED:
            return self._raised()
        do, host, error, _ = self.state
        if (do, met) == (Do.WAIT, Met.BACK) and host < self._last:
            return self._go(Do.WAIT, host + 1)
        then = _NEXT[do, met]
        if aborted:
            then = _NEXT_ABORTED.get((do, met), then)
        if isinstance(then, Error):
            self._end.begin()
            return self._go(Do.REPORT, error=then)
        if then is Do.END and error is not None:
            return self._go(then, error=error, how=_HOW[error])
        return self._go(then, host, error)

    def _raised(self) -> CallStep:
        """An exception goes before the error that was found. Of an end that it interrupts the rest is for the next
        call."""
        do, _, error, _ = self.state
        if do in (Do.END, Do.RAISE):
            return self._go(Do.RAISE, error=Error.EXCEPTION)
        self._end.begin()
        by_itself = do is Do.REPORT and error is Error.FAILURE
        how = Happened.FAILED if by_itself else _HOW[Error.EXCEPTION]
        return self._go(Do.END, error=Error.EXCEPTION, how=how)

    def _go(self, do: Do, host: int = 0, error: Error | None = None, how: Happened | None = None) -> CallStep:
        self.state = CallStep(do, host, error, how)
        return self.state


__all__ = ["CallInFlight", "CallStep", "Do", "Error", "Met"]
