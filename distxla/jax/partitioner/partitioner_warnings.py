"""The warnings of XLA's partitioner on stderr, such as of a resharding for which every device gets the whole array."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from typing import Final

from distxla.errors import DistxlaError
from distxla.ir.module import FrameTables
from distxla.location import printable
from distxla.text.annotations import read_metadata
from distxla.text.lexer import Lexer
from distxla.text.parser import parse_module

LOGGER: Final = logging.getLogger("distxla")
_METADATA: Final = re.compile(r"metadata=(?=\{)")
_MOST_TOLD: Final = 10_000
told: set[str] = set()
_lock: Final = threading.Lock()


def tell(warnings: Sequence[str], text: str) -> None:
    """Hand each warning to the logger `distxla`, once in this process, behind the user's line that it is about.

    text: the partitioned module, in whose tables the warnings' metadata points.
    """
    if not warnings:
        return
    frames = _tables(text)
    for warning in warnings:
        line = located(warning, frames)
        with _lock:
            if line in told:
                continue
            if len(told) == _MOST_TOLD:
                told.clear()
            told.add(line)
        LOGGER.warning("%s", printable(f"distxla: {line}"))


def located(warning: str, frames: FrameTables) -> str:
    """`model.py:36:28 in loss: XLA's partitioner: Involuntary ...`"""
    place = ""
    if found := _METADATA.search(warning):
        try:
            place = frames.frame(read_metadata(Lexer(warning[found.end() :]))) or ""
        except DistxlaError:  # metadata of an XLA that writes it otherwise; the warning itself is whole
            place = ""
    return f"{place}: XLA's partitioner: {warning}" if place else f"XLA's partitioner: {warning}"


def _tables(text: str) -> FrameTables:
    try:
        return parse_module(text).frames
    except DistxlaError:  # the program's own error follows where it is used
        return FrameTables()


__all__ = ["located", "tell"]
