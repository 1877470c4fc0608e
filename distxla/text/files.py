"""Modules in files."""

from __future__ import annotations

import os
from pathlib import Path

from distxla.errors import ArgumentError
from distxla.ir.module import Module
from distxla.text.missing_files import unreadable
from distxla.text.parser import parse_module


def load_module(path: str | os.PathLike[str]) -> Module:
    """Parse a file of HLO text. ArgumentError if it can't be read or is no UTF-8; else what `parse_module` raises."""
    name = os.fspath(path)
    try:
        text = Path(name).read_bytes().decode("utf-8")
    except OSError as error:
        raise unreadable(name, error) from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{name} is not text: byte {error.start} is not UTF-8") from error
    return parse_module(text, name)
