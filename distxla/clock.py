"""The one clock of this process: deadlines, pauses and measurements ask here, and a simulation hands in its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """What the module `time` has of it."""

    def monotonic(self) -> float: ...
    def monotonic_ns(self) -> int: ...
    def time_ns(self) -> int: ...
    def sleep(self, seconds: float, /) -> None: ...


_clock: Clock = time


def now() -> float:
    """CLOCK_MONOTONIC in seconds: the same clock in all processes of this machine. Only differences matter."""
    return _clock.monotonic()


def now_ns() -> int:
    """The same in nanoseconds."""
    return _clock.monotonic_ns()


def time_of_day_ns() -> int:
    """Nanoseconds since 1970, as files are dated; it can be set back."""
    return _clock.time_ns()


def sleep(seconds: float) -> None:
    """Block the thread for so many seconds."""
    _clock.sleep(seconds)


@contextmanager
def replaced(by: Clock) -> Iterator[None]:
    """Another clock for all threads of this process, until the with-block ends."""
    global _clock
    kept, _clock = _clock, by
    try:
        yield
    finally:
        _clock = kept
