"""Names for new instructions and computations, and those that XLA's partitioner gives."""

from __future__ import annotations

import re
from collections.abc import Iterable

# XLA's partitioner names each computation that it makes after the one that it replaces; clones come later.
_PARTITIONED = re.compile(r"_spmd(\.clone(\.\d+)?)*$")


def is_of_partitioner(computation: str) -> bool:
    """Whether XLA's partitioner has made the computation of that name."""
    return _PARTITIONED.search(computation) is not None


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
