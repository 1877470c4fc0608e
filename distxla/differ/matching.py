"""Which elements of two sequences stand for each other, by their order: as in a comparison of two texts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

MOST_AT_ONCE: Final = 6000  # the time of one comparison may grow with the square of the number of elements
WINDOW: Final = 2000


def matched_in_order(
    ours: Sequence[Hashable], theirs: Sequence[Hashable], *, at_once: int = MOST_AT_ONCE, window: int = WINDOW
) -> Iterator[tuple[int, int]]:
    """Pairs of places of equal elements, ascending in both.

    Sequences of more than `at_once` elements are compared window by window: the pairs of a window's first half count,
    and the next one begins behind them. So the time grows with the length alone, and what is missing in one of them
    over half a window may be matched otherwise than by a comparison of all. What they begin with in common, and what
    follows a window, is matched without a comparison.
    """
    begin, other = 0, 0
    is_long = max(len(ours), len(theirs)) > at_once
    while begin < len(ours) and other < len(theirs):
        if is_long and ours[begin] == theirs[other]:
            yield begin, other
            begin, other = begin + 1, other + 1
            continue
        is_last = max(len(ours) - begin, len(theirs) - other) <= (window if begin or other else at_once)
        size = at_once if is_last else window
        mine, its = ours[begin : begin + size], theirs[other : other + size]
        pairs = list(_matched(mine, its))
        if is_last:
            yield from ((begin + a, other + b) for a, b in pairs)
            return
        kept = [(a, b) for a, b in pairs if max(a, b) < size // 2]
        yield from ((begin + a, other + b) for a, b in kept)
        after, other_after = (kept[-1][0] + 1, kept[-1][1] + 1) if kept else (size // 2, size // 2)
        begin, other = begin + after, other + other_after


def _matched(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            yield block.a + k, block.b + k


__all__ = ["matched_in_order"]
