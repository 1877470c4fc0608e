"""Whether the mark `slow` says what is so: `--slow-marks` lists the tests for which it doesn't. It fails nothing.

A test without the mark should take a few seconds at most, one with it more than one. Seconds are those of the clock,
of the test without its fixtures; the first bound leaves room for other work on the machine. What is marked `exhaustive`
may take as long as it likes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SLOW_S, QUICK_S = 8.0, 1.0  # above the one a test has to have the mark, below the other it must not
NAME = "seconds of a test"


@contextmanager
def measured(item: pytest.Item) -> Iterator[None]:
    """The test's report gets its seconds, and marks."""
    begin = time.monotonic()
    try:
        yield
    finally:
        if item.get_closest_marker("exhaustive") is None:
            seconds = time.monotonic() - begin
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
