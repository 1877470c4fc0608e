"""Whether the mark `slow` says what is so: `--slow-marks` lists the tests for which it doesn't. It fails nothing.

What counts is processor time, that of ended child processes included, which other work on the machine changes little;
of tests with clusters, whose processes live on, the seconds that the machine left to them.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.stopwatch import Stopwatch

SLOW_S, QUICK_S = 5.0, 1.0  # above the one a test has to have the mark, below the other it must not
NAME = "seconds of a test"


def _processor_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextmanager
def measured(item: pytest.Item) -> Iterator[None]:
    """The test's report gets its seconds, and marks."""
    watch = Stopwatch() if item.get_closest_marker("cluster") else None
    begin = _processor_s()
    try:
        yield
    finally:
        seconds = watch.seconds if watch else _processor_s() - begin
        item.user_properties.append((NAME, (seconds, item.get_closest_marker("slow") is not None)))


def lines(reports: list[Any]) -> list[str]:
    """What to correct: tests without the mark that take long, functions with it whose tests are all quick."""
    found = []
    with_it: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for seconds, marked in (value for name, value in report.user_properties if name == NAME):
            if marked:
                with_it[report.nodeid.partition("[")[0]].append(seconds)
            elif seconds > SLOW_S:
                found.append(f"{seconds:6.1f} s, not marked slow: {report.nodeid}")
    quick = {name: max(all_) for name, all_ in with_it.items() if max(all_) < QUICK_S}
    return [*sorted(found, reverse=True), *(f"{s:6.1f} s, marked slow: {name}" for name, s in sorted(quick.items()))]
