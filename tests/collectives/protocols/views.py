"""Views as integers: how much of each word's values a process has seen, eight bits a word, the highest of them free.

    pack([1, 0, 2]) == 0x020001    later(0x0001, 0x0100) == 0x0101

So all words are compared, or lowered, by a few operations of one long integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BITS = 8
FIELD = 0x7F  # the greatest number of a word
MOST_WORDS = 64
FREE = int.from_bytes(b"\x80" * MOST_WORDS, "little")  # the free bit of every word
View = int


def pack(numbers: Iterable[int]) -> View:
    """The view with these numbers, the first word's first."""
    found = 0
    for at, number in enumerate(numbers):
        assert 0 <= number <= FIELD
        assert at < MOST_WORDS
        found |= number << at * BITS
    return found


def lowered(view: View, by: View) -> View:
    """Every word's number less that of `by`, but not below 0."""
    rest = (view | FREE) - by
    left = rest & FREE
    return rest & (left - (left >> BITS - 1))


def later(one: View, other: View) -> View:
    """The greater number of every word."""
    return one + lowered(other, one)


def earlier(one: View, other: View) -> View:
    """The smaller number of every word."""
    return one - lowered(one, other)


def words_of(view: View) -> View:
    """The view with the greatest number where this one has any, else 0."""
    some = view + FREE - (FREE >> BITS - 1) & FREE
    return some - (some >> BITS - 1)


class Permutation:
    """Of a view's words: each takes the number of another one. sources: those, in order."""

    def __init__(self, sources: Sequence[int]) -> None:
        masks: dict[int, int] = {}
        for new, old in enumerate(sources):
            masks[new - old] = masks.get(new - old, 0) | FIELD << old * BITS
        self.ahead = [(mask, by * BITS) for by, mask in masks.items() if by >= 0]
        self.back = [(mask, -by * BITS) for by, mask in masks.items() if by < 0]

    def __call__(self, view: View) -> View:
        found = 0
        for mask, by in self.ahead:
            found |= (view & mask) << by
        for mask, by in self.back:
            found |= (view & mask) >> by
        return found
