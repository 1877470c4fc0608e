"""The clock of tests that bound seconds: strict on a quiet machine, bounded on a full one."""

from __future__ import annotations

import pytest

from tests import stopwatch
from tests.stopwatch import SPARED_S, Stopwatch, eventually


@pytest.mark.parametrize(
    ("elapsed", "stalled", "seconds"),
    [(3.0, 0.0, 3.0), (3.0, 1.0, 2.0), (3.0, 4.0, 0.0), (90.0, 80.0, 90.0 - SPARED_S)],
    ids=["quiet", "busy", "several were held up", "what never ends"],
)
def test_seconds(elapsed: float, stalled: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 7.0), (100.0 + elapsed, 7.0 + stalled)])
    monkeypatch.setattr(Stopwatch, "_now", staticmethod(lambda: next(times)))
    watch = Stopwatch().stop()
    assert (watch.elapsed, watch.seconds) == (elapsed, seconds)


def test_a_kernel_that_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(0.0, float("inf")), (30.0, float("inf"))])
    monkeypatch.setattr(Stopwatch, "_now", staticmethod(lambda: next(times)))
    assert Stopwatch().stop().seconds == 30.0 - SPARED_S
    monkeypatch.setattr(stopwatch, "PRESSURE", [stopwatch.Path("/proc/no such file")])
    assert stopwatch._stalled_s() == float("inf")


def test_eventually() -> None:
    answers = iter([False, False, True])
    assert eventually(lambda: next(answers))
    assert not eventually(lambda: False, seconds=0.0)
