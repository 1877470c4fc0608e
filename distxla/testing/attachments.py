"""What a failed test's report gets beside the traceback: the diagnosis of devices that could not go on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DistxlaError
from distxla.testing.sections import DIAGNOSIS

MOST_NAME = 120  # characters of a file name


def attach(report: pytest.TestReport, error: BaseException, folder: str | None) -> None:
    """Add a section for each diagnosis in the error, its causes and its parts.

    folder: also write each as a page there.
    """
    for number, diagnosis in enumerate(_diagnoses(error)):
        lines = [str(diagnosis)]
        if folder is not None:
            path = file_in(folder, report.nodeid, f"{number + 1}.html" if number else ".html")
            path.write_text(diagnosis.page(), encoding="utf-8")
            lines.append(f"  page: {path}")
        report.sections.append((DIAGNOSIS, "\n".join(lines)))


def _diagnoses(error: BaseException) -> Iterator[Diagnosis]:
    """Those of an error, of the errors that it came from, and of a group's."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop(0)
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, DistxlaError) and found.diagnosis is not None:
            yield found.diagnosis
        waiting += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions


def file_in(folder: str, nodeid: str, ending: str) -> Path:
    """A file for a test; makes the folder. Tests whose names differ get files that differ."""
    name = re.sub(r"[^\w.\[\]-]+", "-", nodeid.replace("/", ".").replace("::", "."))
    if name != nodeid.replace("/", ".").replace("::", ".") or len(name) > MOST_NAME:
        name = f"{name[:MOST_NAME]}-{crc32(nodeid.encode()):08x}"
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path / f"{name}{ending}"


__all__ = ["attach", "file_in"]
