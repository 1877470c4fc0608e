"""Where along an array each device's elements come from: one row of indices a device, shared by all equal ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# An element that comes from nowhere and is zero. Far below every index, and still so with any index added to it.
NOWHERE = -(1 << 62)
_LEAST = -(1 << 60)


class Lines:
    """rows[d, j]: the index that element j of device d has. Equal ones of a pool are the same object.

    Rows must not be written to. NOWHERE stands for a zero that is no element of the array.
    """

    __slots__ = ("has_zeros", "is_constant", "is_uniform", "rows")

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.has_zeros = bool(rows.size and rows.min() < _LEAST)
        self.is_uniform = bool((rows == rows[:1]).all())  # the same on every device
        self.is_constant = bool((rows == rows[:, :1]).all())  # one index on each device

    @property
    def count(self) -> int:
        """Elements of a device."""
        return int(self.rows.shape[1])

    def __repr__(self) -> str:
        return f"Lines({self.rows.tolist() if self.rows.size < 65 else self.rows.shape})"


class Pool:
    """All lines of one proof, and what has been computed from them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, bytes], Lines] = {}
        self._ranges: dict[tuple[int, int], Lines] = {}
        self._made: dict[Hashable, Any] = {}

    def lines(self, rows: Array) -> Lines:
        """The lines with these rows."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        if rows.size and rows.min() < _LEAST:
            rows = np.where(rows < _LEAST, NOWHERE, rows)
        key = (rows.shape, rows.tobytes())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Lines(rows)
        return found

    def range(self, devices: int, count: int) -> Lines:
        """0, 1, .. count - 1 on each device."""
        found = self._ranges.get((devices, count))
        if found is None:
            rows = np.broadcast_to(np.arange(count, dtype=np.int64), (devices, count))
            found = self._ranges[devices, count] = self.lines(rows)
        return found

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value that `make` gave for this key when it was first asked for."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def taken(self, lines: Lines, key: Hashable, positions: Array) -> Lines:
        """Of each row the elements at `positions`, one row for all devices or one a device.  key: of the positions."""
        return self.once((lines, "taken", key), lambda: self.lines(_take(lines.rows, positions)))  # type: ignore[no-any-return]

    def moved(self, lines: Lines, sources: tuple[int, ...]) -> Lines:
        """Of device d the row of device sources[d], NOWHERE where that is -1."""

        def make() -> Lines:
            rows = lines.rows[np.array(sources)]
            return self.lines(np.where(np.array(sources)[:, None] < 0, NOWHERE, rows))

        return self.once((lines, "moved", sources), make)  # type: ignore[no-any-return]


def _take(rows: Array, positions: Array) -> Array:
    """NOWHERE as a position gives NOWHERE."""
    if positions.ndim == 1:
        positions = np.broadcast_to(positions, (rows.shape[0], positions.size))
    inside = np.where(positions < 0, 0, positions)
    if rows.shape[1] == 0:
        return np.full(positions.shape, NOWHERE)
    return np.where(positions < _LEAST, NOWHERE, np.take_along_axis(rows, inside, axis=1))


def is_nowhere(rows: Array) -> Array:
    """Where the rows have NOWHERE, also with an index added to it."""
    found: Array = rows < _LEAST
    return found
