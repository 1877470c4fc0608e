"""Files that a command is going to write."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from distxla.errors import ArgumentError
from distxla.machine.shortages import unwritten


def require_writable(path: str) -> None:
    """ArgumentError where nothing can be written: said before a run, not after hours of it."""
    target = Path(path)
    reason = None
    if target.is_dir():
        reason = errno.EISDIR
    elif not target.parent.is_dir():
        reason = errno.ENOENT
    elif not os.access(target if is_special(target) else target.parent, os.W_OK):
        reason = errno.EACCES
    if reason is not None:
        raise ArgumentError(f"cannot write {path}: {os.strerror(reason)}")


def require_distinct(paths: Mapping[str, str | None]) -> None:
    """ArgumentError where two options name the same file: the second would overwrite what the first has written."""
    options: dict[str, str] = {}
    for option, path in paths.items():
        if path is None or is_special(Path(path)):
            continue
        other = options.setdefault(os.path.realpath(path), option)
        if other != option:
            raise ArgumentError(f"{other} and {option} name the same file: {path}")


def is_special(path: Path) -> bool:
    """A device or pipe (/dev/null, /dev/stdout), which is written to and never replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def written_whole(path: str) -> Iterator[IO[bytes]]:
    """A file that appears under its name, complete, when the with-body ends; if that fails, the name is left as it was.

    Anything but an ordinary file (a pipe, /dev/null) is written to and not replaced. Raises ArgumentError.
    """
    try:
        target = Path(path)
        if is_special(target):
            content = io.BytesIO()  # a pipe cannot seek
            yield content
            # not getbuffer: a failed write leaves its view in a cycle, at whose collection CPython 3.12 crashes
            target.write_bytes(content.getvalue())
        else:
            with _replacing(target.resolve()) as file:  # a symbolic link stays one
                yield file
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {unwritten(error)}") from error


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
