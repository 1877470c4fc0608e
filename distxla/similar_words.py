"""Proposals for words that are misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is most like a word, None where none is."""
    return next(iter(difflib.get_close_matches(word, [*candidates], 1)), None)


def did_you_mean(word: str) -> str:
    """The note of an error that proposes a word."""
    return f"hint: did you mean {word}?"
