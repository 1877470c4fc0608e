"""Names for instructions and computations that the text defines without one."""

from __future__ import annotations

import re

from distxla.text.lexer import BLANK, NAME

_DEFINED = re.compile(rf"({NAME}+){BLANK}=")
_EACH_NAME = re.compile(NAME)


class FreshNames:
    """Names that occur nowhere in a text; each is given once. The text is searched when the first one is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._instructions: set[str] | None = None
        self._words: set[str] | None = None

    def instruction(self, base: str) -> str:
        """`base`, with a number where the text defines an instruction of that name in any computation."""
        if self._instructions is None:
            self._instructions = set(_DEFINED.findall(self._text))
        return _unused(base, self._instructions)

    def computation(self, base: str) -> str:
        """`base`, with a number where this word is anywhere in the text."""
        if self._words is None:
            self._words = set(_EACH_NAME.findall(self._text))
        return _unused(base, self._words)


def _unused(base: str, taken: set[str]) -> str:
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}.{number}"
    taken.add(name)
    return name
