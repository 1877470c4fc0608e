"""The part of a cache key that stands for distxla's source: it changes with any file, and is read only then."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from distxla import clock
from distxla.compiler.cache_key import SETTLED_NS, source_digest


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of a package."""
    folder = tmp_path / "package"
    (folder / "inner" / "__pycache__").mkdir(parents=True)
    (folder / "a.py").write_text("a = 1\n")
    (folder / "inner" / "b.py").write_text("b = 1\n")
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are read."""
    found: list[str] = []
    read = Path.read_bytes

    def noted(path: Path) -> bytes:
        found.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    return found


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time pass after which a change is not mistaken for another."""
    now = time.time_ns
    monkeypatch.setattr(clock, "time_of_day_ns", lambda: now() + 2 * SETTLED_NS)


@pytest.mark.parametrize("change", ["content", "name", "more", "less"])
def test_every_change_of_a_file_changes_it(package: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    settle(monkeypatch)
    before = source_digest([package])
    assert source_digest([package]) == before
    file = package / "inner" / "b.py"
    if change == "content":
        state = file.stat()
        file.write_text("b = 2\n")
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))  # as a tool that restores times does
    elif change == "name":
        file.rename(package / "inner" / "c.py")
    elif change == "more":
        (package / "c.py").write_text("")
    else:
        file.unlink()
    assert source_digest([package]) != before


def test_files_that_have_not_changed_are_not_read(
    package: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    first = source_digest([package])
    assert reads == ["a.py", "b.py"]
    (package / "inner" / "__pycache__" / "c.py").write_text("")
    (package / "notes.txt").write_text("")
    assert source_digest([package]) == first
    assert reads == ["a.py", "b.py"]


def test_files_that_were_changed_just_now_are_read_each_time(package: Path, reads: list[str]) -> None:
    assert source_digest([package]) == source_digest([package])
    assert reads == ["a.py", "b.py"] * 2
