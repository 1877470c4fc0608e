"""Which resource of the machine is short when a process or a thread cannot be started."""

from __future__ import annotations

import errno
import threading
from typing import Final

from distxla.errors import ClusterError, DistxlaError, OutOfMemoryError

PROCESSES: Final = (
    "this machine allows no more processes or threads (see `ulimit -u`, and pids.max of the control group)"
)
MEMORY: Final = "there is no more memory for its processes"
FILES: Final = "a process may open no more files (see `ulimit -n`)"
ROOM: Final = "no space is left on the disk of its files (see TMPDIR)"
_BY_ERRNO: Final = {errno.EAGAIN: PROCESSES, errno.ENOMEM: MEMORY, errno.EMFILE: FILES, errno.ENOSPC: ROOM}


def of_error(number: int) -> str | None:
    """What an errno says that is missing."""
    return _BY_ERRNO.get(number)


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
