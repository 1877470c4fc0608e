"""The table of what communicates, as `distxla check` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.scheduler.communication_table import CommunicationRow

MOST_ROWS = 8
MOST_GROUPS, MOST_PAIRS = 4, 2
FUNCTION = re.compile(r"(?<=\d) in .*")  # behind the line of the user's program
UNKNOWN = "?"
PAIRED = ("collective-permute", "send", "recv")
HEAD = ("instruction", "kind", "groups", "bytes", "trips", "in all", "source")


def lines(rows: Sequence[CommunicationRow], paths: Sequence[str]) -> Iterator[str]:
    """A line for each instruction, in the order of the texts; of many those with the most bytes in all.

    paths: of the programs, which are named where there are several.
    """
    if not rows:
        return
    yield "what communicates: bytes that a device gives each time, and all devices in all"
    shown = rows
    if len(rows) > MOST_ROWS:
        shown = sorted(rows, key=_weight, reverse=True)[:MOST_ROWS]
    cells = [HEAD, *(_cells(row, paths) for row in shown)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(HEAD))]
    for line in cells:
        yield "  ".join(["", *(cell.ljust(width) for cell, width in zip(line, widths, strict=True))]).rstrip()
    if len(rows) > MOST_ROWS:
        yield f"  … ({len(rows)} in all)"


def _weight(row: CommunicationRow) -> int:
    """By which the rows of a long table are chosen: bytes over all devices, of one execution where only the run tells
    how many there are."""
    if row.byte_count_in_all is not None:
        return row.byte_count_in_all
    return (row.byte_count or 0) * row.givers


def _cells(row: CommunicationRow, paths: Sequence[str]) -> tuple[str, ...]:
    from distxla.machine.byte_counts import amount

    name = row.instruction if len(paths) == 1 else f"{row.instruction} ({paths[row.program]})"
    sizes = [UNKNOWN if size is None else amount(size) for size in (row.byte_count, row.byte_count_in_all)]
    trips = UNKNOWN if row.trips is None else str(row.trips)
    source = FUNCTION.sub("", row.source) if row.source else str(row.location or "")
    groups = row.first_groups(MOST_PAIRS if row.kind in PAIRED else MOST_GROUPS)
    return name, row.kind, groups, sizes[0], trips, sizes[1], source


__all__ = ["lines"]
