"""Files that hold modules."""

from __future__ import annotations

import os
import stat

from distxla.text.missing_files import unreadable

_PIECE = 1 << 24  # bytes


def read_file(name: str) -> bytes:
    """The file's bytes; of what is no ordinary file, up to the first piece that no text has.

    ArgumentError if it can't be read.
    """
    try:
        return _read(name)
    except OSError as error:
        raise unreadable(name, error) from error


def _read(path: str) -> bytes:
    """Devices such as /dev/zero have no end."""
    pieces = []
    with open(path, "rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file.read()
        while piece := file.read(_PIECE):
            pieces.append(piece)
            if b"\0" in piece:
                break
    return b"".join(pieces)
