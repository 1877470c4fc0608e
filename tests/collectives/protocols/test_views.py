"""Packed views against lists of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.collectives.protocols.views import FIELD, MOST_WORDS, Permutation, earlier, later, lowered, pack, words_of

NUMBERS = st.lists(st.tuples(*[st.integers(0, FIELD)] * 2), max_size=MOST_WORDS)


@given(NUMBERS)
def test_words_are_compared_and_lowered_each_for_itself(pairs: list[tuple[int, int]]) -> None:
    one, other = pack(a for a, _ in pairs), pack(b for _, b in pairs)
    assert lowered(one, other) == pack(max(0, a - b) for a, b in pairs)
    assert later(one, other) == pack(max(pair) for pair in pairs)
    assert earlier(one, other) == pack(min(pair) for pair in pairs)
    assert words_of(one) == pack(FIELD if a else 0 for a, _ in pairs)


@given(st.permutations(range(12)), st.lists(st.integers(0, FIELD), min_size=12, max_size=12))
def test_a_permutation_takes_each_word_from_its_source(sources: list[int], numbers: list[int]) -> None:
    assert Permutation(sources)(pack(numbers)) == pack(numbers[source] for source in sources)
