"""A time limit that all phases of a task share, and the current work, which the error names when time has run out.

    with time_limit(5), phase("checking"):
        for computation in module.computations:
            at(computation.name)        # TimeLimitError: … ran out while checking: in f12
            ...

Work in this process checks the clock whenever it names its current work (`at`). A wait for another process lasts
`left()` seconds at most, inside `waiting()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real

from distxla import clock
from distxla.errors import ArgumentError, TimeLimitError

MOST_S = 1e8  # three years; some waits of the system take no more


def checked_seconds(seconds: object) -> float:
    """A time limit that somebody gave; ArgumentError if it is none."""
    if not isinstance(seconds, Real) or not 0 < float(seconds) <= MOST_S:
        raise ArgumentError(f"time_limit: expected a positive number of seconds, at most {MOST_S:g}, found {seconds!r}")
    return float(seconds)


class TimeLimit:
    """seconds: as given.  place: the current work in the innermost phase.  waits: number of nested waits that check the
    limit themselves.  told: the last error that was made of it.  is_enforced: an alarm interrupts the task when time
    has run out (cli/time_limits.py)."""

    def __init__(self, seconds: float) -> None:
        self.seconds = checked_seconds(seconds)
        self.end = clock.now() + seconds
        self.phases: list[str] = []
        self.place = ""
        self.waits = 0
        self.told: TimeLimitError | None = None
        self.is_enforced = False

    @property
    def is_over(self) -> bool:
        return clock.now() >= self.end

    def left(self) -> float:
        """Seconds that remain; TimeLimitError if there are none."""
        left = self.end - clock.now()
        if left <= 0:
            raise self.error()
        return left

    def error(self, place: str | None = None) -> TimeLimitError:
        """The error that names limit and phase.  place: the current work, if the caller knows better."""
        doing = [*self.phases, *filter(None, [self.place if place is None else place])]
        while_ = f" while {': '.join(doing)}" if doing else ""
        error = TimeLimitError(f"the time limit of {self.seconds:g} s ran out{while_}")
        error.phase = self.phases[-1] if self.phases else None
        self.told = error
        return error

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The with-body ends by itself soon after the limit, with an error that says more."""
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1


_current: ContextVar[TimeLimit | None] = ContextVar("distxla_time_limit", default=None)
_timed: ContextVar[dict[str, float] | None] = ContextVar("distxla_timed_phases", default=None)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[TimeLimit | None]:
    """Limit the with-body, in this thread, to `seconds`; None: no limit besides the current one. Of nested limits the
    one that ends first applies. ArgumentError if `seconds` is not positive."""
    outer = _current.get()
    given = None if seconds is None else TimeLimit(seconds)
    limit = given if outer is None or (given is not None and given.end < outer.end) else outer
    if limit is outer:
        yield limit
        return
    assert limit is not None
    if outer is not None:
        limit.phases = list(outer.phases)
    token = _current.set(limit)
    try:
        yield limit
    finally:
        _current.reset(token)


def current_limit() -> TimeLimit | None:
    """The limit of this thread, if any."""
    return _current.get()


def seconds_left() -> float | None:
    """Seconds that remain, None without a limit; TimeLimitError if there are none."""
    limit = _current.get()
    return None if limit is None else limit.left()


@contextmanager
def timed_phases() -> Iterator[dict[str, float]]:
    """The seconds that this thread spends in each `phase` of the with-body, by name, in the order of their ends."""
    found: dict[str, float] = {}
    token = _timed.set(found)
    try:
        yield found
    finally:
        _timed.reset(token)


@contextmanager
def phase(doing: str) -> Iterator[None]:
    """Name the with-body, as in `while checking`; TimeLimitError if no time is left for it."""
    timed = _timed.get()
    if timed is None:
        with _limited_phase(doing):
            yield
        return
    begin = clock.now()
    try:
        with _limited_phase(doing):
            yield
    finally:
        timed[doing] = timed.get(doing, 0.0) + clock.now() - begin


@contextmanager
def _limited_phase(doing: str) -> Iterator[None]:
    limit = _current.get()
    if limit is None:
        yield
        return
    limit.left()
    place = limit.place
    limit.phases.append(doing)
    limit.place = ""
    try:
        yield
    finally:
        limit.phases.pop()
        limit.place = place


def at(place: str) -> None:
    """Name the current work in this phase; TimeLimitError if the limit has run out. Costs next to nothing."""
    limit = _current.get()
    if limit is not None:
        limit.place = place
        if not limit.is_enforced and clock.now() >= limit.end:
            raise limit.error()


__all__ = ["TimeLimit", "at", "current_limit", "phase", "seconds_left", "time_limit", "timed_phases"]
