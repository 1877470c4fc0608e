"""The axis of lines of time: whatever the moments are, it ends, and keeps their order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distxla.diagnosis.report.html_lines import Axis, Row, lines

GAPS = st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=8)
STARTS = st.sampled_from([0.0, 1.5, 1e3, 2e6])


def moments_of(start: float, gaps: list[float]) -> list[float]:
    moments = [start]
    for gap in gaps:
        moments.append(moments[-1] + gap)
    return sorted({*moments})


@given(STARTS, GAPS)
@example(0.0, [0.3, 0.1, 0.2])  # the differences leave 2.8e-17 of it
@example(2e6, [1e-9, 1e6])
def test_places_keep_the_order_of_moments(start: float, gaps: list[float]) -> None:
    moments = moments_of(start, gaps)
    axis = Axis.of(moments, cuts=True)
    places = [axis.at(moment) for moment in moments]
    assert all(one <= other for one, other in pairwise(places))
    assert [places[0], places[-1]] == pytest.approx([0.0 if len(moments) > 1 else 100.0, 100.0])
    assert len(axis.cuts) <= max(0, len(moments) - 2)


@given(STARTS, GAPS)
@example(0.0, [0.3, 0.1, 0.2])
@example(2e6, [1e-9, 1e6])
def test_it_has_few_ticks(start: float, gaps: list[float]) -> None:
    axis = Axis.of(moments_of(start, gaps), cuts=True)
    assert len([*axis.ticks()]) <= 8 + len(axis.cuts) + 2
    assert "".join(lines([Row("device 0", "", [])], axis, "lines")).count('class="tick"') <= 10


@pytest.mark.parametrize(("gaps", "cuts"), [([1.0, 9.0], 1), ([9.0, 1.0], 1), ([5.0, 5.0], 0), ([1.0, 90.0, 9.0], 2)])
def test_the_shortest_piece_is_never_cut_out(gaps: list[float], cuts: int) -> None:
    axis = Axis.of(moments_of(0.0, gaps), cuts=True)
    assert len(axis.cuts) == cuts
    assert min(gaps) not in [other - one for one, other in axis.cuts]
