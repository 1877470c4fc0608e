"""What a notebook's cell shows of a check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.diagnosis.report.html import parts as parts_of_diagnosis
from distxla.diagnosis.report.html_markup import counts, escape, in_notebook, listed_hints, table

MOST_ROWS = 64
COLUMNS = ("program", "instruction", "kind", "groups", "bytes", "trips", "bytes_in_all", "source")

Rows = Sequence[Mapping[str, Any]]


def fragment(
    summary: str, diagnosis: Diagnosis | None, communication: Rows, refused: Rows, notes: Sequence[str]
) -> str:
    """summary: a line about deadlocks.  diagnosis: where devices may not go on.  communication, refused, notes: as of
    `CheckResult`."""
    return in_notebook(_parts(summary, diagnosis, communication, refused, notes))


def _parts(
    summary: str, diagnosis: Diagnosis | None, communication: Rows, refused: Rows, notes: Sequence[str]
) -> Iterator[str]:
    if diagnosis is None:
        yield f"<h1>{escape(summary)}</h1>"
    else:
        yield from parts_of_diagnosis(diagnosis)
    yield counts(
        (
            len(communication),
            "instruction communicates" if len(communication) == 1 else "instructions communicate",
            False,
        ),
        (len(refused), "can't be executed", bool(refused)),
    )
    yield from listed_hints("Notes", notes)
    if refused:
        yield "<h2>What can't be executed</h2>"
        yield from table([{name: str(value or "") for name, value in row.items()} for row in refused[:MOST_ROWS]])
    if communication:
        yield "<h2>What communicates</h2>"
        rows = [{name: "" if row[name] is None else str(row[name]) for name in COLUMNS} for row in communication]
        yield from table([{name.replace("_", " "): row[name] for name in COLUMNS} for row in rows[:MOST_ROWS]])
        if len(rows) > MOST_ROWS:
            yield f'<p class="note">and {len(rows) - MOST_ROWS} more</p>'


__all__ = ["fragment"]
