"""Modules in files."""

from __future__ import annotations

import os

from distxla.ir.module import Module
from distxla.text.missing_files import unreadable
from distxla.text.parser import parse_module

_PIECE = 1 << 24  # bytes


def load_module(path: str | os.PathLike[str]) -> Module:
    """Parse a file of HLO text. ArgumentError if it can't be read; else the errors of `parse_module`."""
    name = os.fspath(path)
    try:
        data = _read(name)
    except OSError as error:
        raise unreadable(name, error) from error
    return parse_module(data, name)


def _read(path: str) -> bytes:
    """The file's bytes, up to the first piece that no text has: devices such as /dev/zero have no end."""
    pieces = []
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            pieces.append(piece)
            if b"\0" in piece:
                break
    return b"".join(pieces)
