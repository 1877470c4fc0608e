"""The lines of the user's files around an instruction: of the program's text, and of the source that made it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from distxla.diagnosis.facts.blocked import Place
from distxla.diagnosis.report.html_markup import escape, shortened
from distxla.lazy_dataclass import dataclass

AROUND = 2  # lines before and behind
MOST_LETTERS = 400  # of a line
MOST_BYTES = 32 << 20  # of a file that is read
MOST_PLACES = 4


@dataclass(frozen=True)
class Excerpt:
    """title: the place.  lines: numbers and texts.  marked: the number of the line that is meant."""

    title: str
    lines: tuple[tuple[int, str], ...]
    marked: int


def excerpts(places: Iterable[Place]) -> Iterator[str]:
    """As markup, the first places only. A file that can't be read, or has changed since, is left out."""
    told = 0
    shown: set[str] = set()
    for place in places:
        if told == MOST_PLACES:
            return
        for found in (of_program(place), of_source(place)):
            if found is not None and found.title not in shown:
                shown.add(found.title)
                yield _markup(found)
        told += place.location is not None


def of_program(place: Place) -> Excerpt | None:
    """The program's lines; only the instruction's own where its file is not to be had as it was."""
    where = place.location
    if where is None or not where.text:
        return None
    title = f"{where.file}:{where.line}"
    lines = _lines(where.file)
    if where.line > len(lines) or lines[where.line - 1].rstrip() != where.text.rstrip():
        return Excerpt(title, ((where.line, where.text),), where.line)
    return _around(title, lines, where.line)


def of_source(place: Place) -> Excerpt | None:
    """The lines of the Python file that metadata name."""
    return _of_frame(place.frame or "")


def source_excerpt(frame: str) -> Iterator[str]:
    """As markup. frame: `model.py:12`. Nothing where the file can't be read."""
    found = _of_frame(frame)
    if found is not None:
        yield _markup(found)


def _of_frame(frame: str) -> Excerpt | None:
    """Files that aren't Python's aren't read, whatever a program's text says."""
    found = re.match(r"(?P<file>[^:]+\.py):(?P<line>\d+)", frame)
    if found is None:
        return None
    lines, number = _lines(found["file"]), int(found["line"])
    return _around(f"{found['file']}:{number}", lines, number) if 1 <= number <= len(lines) else None


def _around(title: str, lines: list[str], number: int) -> Excerpt:
    numbers = range(max(1, number - AROUND), min(len(lines), number + AROUND) + 1)
    return Excerpt(title, tuple((n, lines[n - 1]) for n in numbers), number)


def _lines(path: str) -> list[str]:
    """Of a file; none where it isn't an ordinary one of reasonable size."""
    try:
        file = Path(path)
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return []
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []


def _markup(excerpt: Excerpt) -> str:
    width = len(str(excerpt.lines[-1][0]))
    rows = []
    for number, text in excerpt.lines:
        row = f'<span class="at">{number:>{width}}</span>  {escape(shortened(text.expandtabs(4), MOST_LETTERS))}'
        rows.append(f"<mark>{row}</mark>" if number == excerpt.marked else f"{row}\n")
    return f'<p class="note">{escape(excerpt.title)}</p><pre>{"".join(rows)}</pre>'


__all__ = ["Excerpt", "excerpts", "of_program", "of_source", "source_excerpt"]
