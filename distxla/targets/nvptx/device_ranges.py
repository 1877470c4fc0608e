"""Which memory of the GPU stands for which of the host."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

ALIGNMENT = 256  # of what is allocated on a GPU


class DeviceRanges:
    """Ranges of the host's memory side by side in one block of the GPU's; those that overlap stay together.

    bytes: of the block.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """ranges: (start, bytes)."""
        merged: list[list[int]] = []
        for start, size in sorted(ranges):
            if merged and start < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], start + size)
            elif size:
                merged.append([start, start + size])
        self.bytes = 0
        self._starts, self._ends, self._offsets = [], [], []
        for start, end in merged:
            self._starts.append(start)
            self._ends.append(end)
            self._offsets.append(self.bytes)
            self.bytes += -(-(end - start) // ALIGNMENT) * ALIGNMENT

    def offset_of(self, place: int) -> int | None:
        """Where the block has the host's address; None where it hasn't."""
        number = bisect_right(self._starts, place) - 1
        if number < 0 or place >= self._ends[number]:
            return None
        return int(self._offsets[number] + place - self._starts[number])


__all__ = ["ALIGNMENT", "DeviceRanges"]
