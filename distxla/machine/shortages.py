"""Which resource of the machine is short when a process or a thread cannot be started."""

from __future__ import annotations

import errno
import os
import threading
from typing import Final

from distxla.errors import ClusterError, DistxlaError, OutOfMemoryError
from distxla.wording import counted

PROCESSES: Final = (
    "this machine allows no more processes or threads (see `ulimit -u`, and pids.max of the control group)"
)
MEMORY: Final = "there is no more memory for its processes"
FILES: Final = "a process may open no more files (see `ulimit -n`)"
ROOM: Final = "no space is left on the disk of its files (see TMPDIR)"
FILE_SIZE: Final = "a process may have no larger files (see `ulimit -f`)"
_BY_ERRNO: Final = {
    errno.EAGAIN: PROCESSES,
    errno.ENOMEM: MEMORY,
    errno.EMFILE: FILES,
    errno.ENOSPC: ROOM,
    errno.EFBIG: FILE_SIZE,
}


def of_error(number: int) -> str | None:
    """What an errno says that is missing."""
    return _BY_ERRNO.get(number)


def load() -> str:
    """`load 21.3 on 2 processors`: why what starts may take long."""
    return f"load {os.getloadavg()[0]:.3g} on {counted(os.cpu_count() or 1, 'processor')}"


def unwritten(error: OSError) -> str | None:
    """Why a file of the user's choice can't be written."""
    return FILE_SIZE if error.errno == errno.EFBIG else error.strerror


def not_started(what: str, error: OSError) -> DistxlaError:
    """The error for a process that cannot be started: `what`, and why. OutOfMemoryError where memory is missing, else
    ClusterError."""
    number = error.errno or 0
    kind = OutOfMemoryError if number == errno.ENOMEM else ClusterError
    return kind(f"{what}: {of_error(number) or error.strerror or error}")


def started_thread(thread: threading.Thread, what: str) -> threading.Thread:
    """The thread, started. ClusterError, `what` and why, where the machine allows no more."""
    try:
        thread.start()
    except RuntimeError as error:
        raise ClusterError(f"{what}: {PROCESSES}") from error
    return thread
