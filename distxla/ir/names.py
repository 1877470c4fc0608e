"""Names for new instructions and computations."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Hands out names that are unused in the computation (or module) it was made for."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted` itself where it is free, otherwise `wanted.N`."""
        name = wanted
        if name in self._taken:
            number = self._next.get(wanted, 1)
            while (name := f"{wanted}.{number}") in self._taken:
                number += 1
            self._next[wanted] = number + 1
        self._taken.add(name)
        return name
