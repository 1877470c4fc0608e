"""Findings: inputs for which a target's promise does not hold, once for each place in the code."""

from __future__ import annotations

import hashlib
import resource
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.targets import Target

LIMIT_BYTES = 1 << 30  # of memory, beyond what the process had before


class Findings:
    """Checks inputs of one target and writes those that fail to `folder`: TARGET-PLACE, and the traceback beside it."""

    def __init__(self, name: str, target: Target, folder: Path) -> None:
        self._name, self._target, self._folder = name, target, folder
        self._known: set[str] = set()

    def check(self, data: bytes) -> None:
        """Notes the target's exceptions; raises none."""
        try:
            self._target.check(data)
        except (Exception, SystemExit) as error:
            self._note(data, error)

    def _note(self, data: bytes, error: BaseException) -> None:
        place = _place(error)
        if place in self._known:
            return
        self._known.add(place)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._name}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        path.write_bytes(data)
        story = "".join(traceback.format_exception(error))
        path.with_suffix(".txt").write_text(
            f"{story}\npython -m tests.fuzz {self._name} --replay {path}\n", errors="backslashreplace"
        )


def _place(error: BaseException) -> str:
    """The kind of error and the line of distxla that raised it, or that called what raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/distxla/" in frame.filename] or list(frames)
    return f"{type(error).__name__} {ours[-1].filename}:{ours[-1].lineno}"


@contextmanager
def limited_memory(extra: int = LIMIT_BYTES) -> Iterator[None]:
    """Within, allocations of more than `extra` bytes above what this process has fail with MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
