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


@pytest.mark.parametrize("second", [0.01, 0.011, 0.5])
def test_what_is_kept_is_not_cut_out_however_long_it_is(second: float) -> None:
    """Two calls of 10 ms and longer, a second apart: only the second between them is idle."""
    calls = [(0.0, 0.01), (1.01, 1.01 + second)]
    axis = Axis.of([moment for call in calls for moment in call], cuts=True, kept=calls)
    assert axis.cuts == ((0.01, 1.01),)
    widths = [axis.at(end) - axis.at(begin) for begin, end in calls]
    assert widths[1] / widths[0] == pytest.approx(second / 0.01)
    assert sum(widths) == pytest.approx(93.0)


def test_pieces_that_overlap_are_kept_as_one() -> None:
    kept = [(0.0, 5.0), (4.0, 90.0), (91.0, 92.0)]
    assert Axis.of([0.0, 4.0, 5.0, 90.0, 91.0, 92.0], cuts=True, kept=kept).cuts == ()


def test_half_of_the_time_but_for_rounding_is_not_cut_out() -> None:
    assert Axis.of([0.0, 0.01, 1.0, 1.01], cuts=True).cuts == ((0.01, 1.0),)


def test_the_lengths_of_cuts_that_are_near_stand_in_lines_of_their_own() -> None:
    axis = Axis.of([0.0, 50.0, 1050.0, 1051.0, 1351.0, 1401.0], cuts=True)
    assert len(axis.cuts) == 2
    text = "".join(lines([Row("device 0", "", [])], axis, "lines"))
    told = [part for part in text.split('<div class="line axis">') if "cut out" in part]
    assert [part.count("cut out") for part in told] == [1, 1]
