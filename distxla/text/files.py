"""Modules in files."""

from __future__ import annotations

import os
from pathlib import Path

from distxla.ir.module import Module
from distxla.text.missing_files import unreadable
from distxla.text.parser import parse_module


def load_module(path: str | os.PathLike[str]) -> Module:
    """Parse a file of HLO text. ArgumentError if it can't be read; else the errors of `parse_module`."""
    name = os.fspath(path)
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise unreadable(name, error) from error
    return parse_module(data, name)
