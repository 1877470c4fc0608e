"""The list of tests whose mark `slow` is wrong, or missing."""

from __future__ import annotations

from types import SimpleNamespace

from tests.slow_marks import NAME, lines


def report(nodeid: str, seconds: float, slow: bool) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid, user_properties=[("seed", 4), (NAME, (seconds, slow))])


def test_what_is_listed() -> None:
    reports = [
        report("t.py::long[1]", 8.5, False),
        report("t.py::short", 0.1, False),
        report("t.py::sometimes_long[1]", 0.1, True),
        report("t.py::sometimes_long[2]", 9.0, True),
        report("t.py::never_long[1]", 0.1, True),
        report("t.py::never_long[2]", 0.3, True),
    ]
    assert lines(reports) == ["   8.5 s, not marked slow: t.py::long[1]", "   0.3 s, marked slow: t.py::never_long"]
