"""Cache entries: the program that was written, or none."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from distxla.compiler.cache import ProgramCache
from distxla.program.artifact import CompiledProgram
from tests.fuzz.targets import Target
from tests.runtime.cached_program import program

KEY = "0" * 64


@cache
def _programs() -> ProgramCache:
    folder = tempfile.mkdtemp(prefix="distxla-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return ProgramCache(Path(folder, "cache"), max_bytes=1 << 20)


def _entry() -> Path:
    return _programs().files.path / f"{KEY}.program"


def check(data: bytes) -> None:
    programs = _programs()
    if not programs.files.path.exists():
        programs.write(KEY, program())
    _entry().write_bytes(data)
    _entry().chmod(0o600)
    found = programs.read(KEY)
    assert isinstance(found, CompiledProgram) if found is not None else not _entry().exists()


def seeds() -> Iterator[bytes]:
    for name in ("m", "another"):
        _programs().write(KEY, program(name=name))
        yield _entry().read_bytes()


def mutate(data: bytes, choose: random.Random) -> bytes | None:
    """The fuzzer's own changes: an entry's hash refuses them all, unless one finds a way around it."""
    return None


TARGET = Target(check, seeds, mutate, weight=1, largest=4096)
