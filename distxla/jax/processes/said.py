"""What the owner says to its stderr, also of errors that must end none of its threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from distxla.errors import raised


def say(text: str) -> None:
    """To stderr, in one piece."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"distxla: {text}\n".encode(errors="replace"))


def guarded(work: Callable[[], None]) -> None:
    """Do work in a thread that goes on when it raises, and would not tell what."""
    try:
        work()
    except BaseException as error:
        say(raised(error))


__all__ = ["guarded", "say"]
