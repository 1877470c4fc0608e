"""Sequences by their order: short ones at once, long ones in windows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from distxla.differ import matching
from distxla.differ.matching import matched_in_order


def test_short_ones() -> None:
    assert list(matched_in_order("abxcd", "abcyd")) == [(0, 0), (1, 1), (3, 2), (4, 4)]
    assert list(matched_in_order("", "abc")) == list(matched_in_order("abc", "")) == []


@pytest.mark.parametrize("missing", [0, 5, 40], ids=["nothing", "some", "many"])
def test_long_ones(missing: int) -> None:
    """Iterations of a loop in which one side has elements more, and a stretch that the other side lacks."""
    count = 1000
    theirs = [(k % 7, k // 7 % 11) for k in range(2 * count)]
    ours = [token for k, token in enumerate(theirs) for token in ([token, ("more", k)] if k % 7 == 3 else [token])]
    del theirs[count : count + missing]
    pairs = list(matched_in_order(ours, theirs, at_once=600, window=200))
    assert all(ours[a] == theirs[b] for a, b in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert len(pairs) >= 0.9 * len(theirs)


def test_long_ones_that_are_equal_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SequenceMatcher", None)
    tokens = [k % 7 for k in range(1000)]
    assert list(matched_in_order(tokens, tokens, at_once=600, window=200)) == [(k, k) for k in range(1000)]
