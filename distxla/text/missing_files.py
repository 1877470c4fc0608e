"""Files that can't be read, with a proposal where the name may be misspelt."""

from __future__ import annotations

from pathlib import Path

from distxla.errors import ArgumentError
from distxla.similar_words import did_you_mean, nearest


def unreadable(path: str, reason: OSError) -> ArgumentError:
    """The error for a file that could not be opened. Its note names a file of the same folder with a similar name."""
    error = ArgumentError(f"cannot read {path}: {reason.strerror or reason}")
    if isinstance(reason, FileNotFoundError) and (near := _near_file(Path(path))) is not None:
        error.add_note(did_you_mean(str(near)))
    return error


def _near_file(path: Path) -> Path | None:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    near = nearest(path.name, names)
    return None if near is None else path.with_name(near)
