"""Findings: inputs for which a target's promise does not hold, once for each place in the code."""

from __future__ import annotations

import base64
import hashlib
import resource
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.targets import Target

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 1 << 30  # of memory, beyond what the process had before
MOST_LINES = 12  # of a traceback in a summary
MOST_PACKED = 3000  # characters of an input in a summary


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


def summary(path: Path) -> str:
    """A finding for a log from which its files can't be had: the end of the traceback, and the input."""
    story, lines = path.with_suffix(".txt"), []
    if story.exists():  # the fuzzer itself writes the input alone
        lines = story.read_text().rstrip().splitlines()[-MOST_LINES:]
    packed = pack(path.read_bytes())
    if len(packed) <= MOST_PACKED:
        lines.append(f"input, for tests.fuzz.findings.unpack: {packed}")
    return "\n".join(lines)


def pack(data: bytes) -> str:
    """An input as a word."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def unpack(text: str) -> bytes:
    """The input that `pack` has made a word of."""
    return zlib.decompress(base64.b64decode(text))


def _place(error: BaseException) -> str:
    """The kind of error and the line of distxla that raised it, or that called what raised it; in every clone alike."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(f"{ROOT}/distxla/")] or list(frames)
    return f"{type(error).__name__} {ours[-1].filename.removeprefix(f'{ROOT}/')}:{ours[-1].lineno}"


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
