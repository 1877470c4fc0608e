"""Seconds for tests that bound them, on machines that have other things to do.

    watch = Stopwatch()
    step([X])
    assert watch.seconds < 1.5

On a quiet machine `seconds` are those of the clock. On a full one, those are left out in which something on this
machine waited for a processor, a disk or memory, or in which the hypervisor gave the processors to somebody else: at
most `SPARED_S`, so that what never ends is found on any machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

SPARED_S = 10.0  # less than the time limits of calls that have to end by themselves
PRESSURE = [Path("/proc/pressure") / resource for resource in ("cpu", "io", "memory")]


def _stalled_s() -> float:
    """Seconds since the machine's start in which something was held up; infinity where no kernel counts them."""
    try:
        # some avg10=1.53 avg60=1.87 avg300=1.73 total=1088168194 (in microseconds)
        held_up = sum(float(path.read_text().split("total=")[1].split()[0]) / 1e6 for path in PRESSURE)
        stolen = float(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return float("inf")
    return held_up + stolen


class Stopwatch:
    """Runs since it was made, or until `stop`."""

    def __init__(self) -> None:
        self._end: tuple[float, float] | None = None
        self._begin = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.monotonic(), _stalled_s()

    def stop(self) -> Stopwatch:
        self._end = self._now()
        return self

    @property
    def elapsed(self) -> float:
        """Seconds of the clock: for bounds from below."""
        return (self._end or self._now())[0] - self._begin[0]

    @property
    def seconds(self) -> float:
        """Those for which what was measured has to answer: for bounds from above."""
        (begin, stalled), (end, stalled_then) = self._begin, self._end or self._now()
        spared = SPARED_S if stalled == float("inf") else min(stalled_then - stalled, SPARED_S)
        return max(end - begin - spared, 0.0)


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it holds, or comes to hold within so many seconds: more than any machine needs."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return found
