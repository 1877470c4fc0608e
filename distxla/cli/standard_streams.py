"""Standard streams that were closed when the process began (`distxla … >&-`).

The next file that is opened would get the number of a closed stream, and output would end up in it. So each closed
stream gets a descriptor of /dev/null: stdin is empty, writing to stdout fails as it does on a closed stream, and
errors are discarded. No module is imported here that opens files.
"""

from __future__ import annotations

import os
import sys

_MODES = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)  # read-only for stdout, so that writing to it is an error


def open_closed() -> None:
    """Give every closed standard stream a descriptor, in this process and in those that it starts."""
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest number that is free
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")


__all__ = ["open_closed"]
