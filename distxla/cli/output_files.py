"""Files that a command is going to write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from distxla.errors import ArgumentError


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


def is_special(path: Path) -> bool:
    """A device or pipe (/dev/null, /dev/stdout), which is written to and never replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()
