"""Threads, of which a machine may allow no more."""

from __future__ import annotations

import threading
from typing import Final

from distxla.errors import ClusterError

PROCESSES: Final = (
    "this machine allows no more processes or threads (see `ulimit -u`, and pids.max of the control group)"
)


def started_thread(thread: threading.Thread, what: str) -> threading.Thread:
    """The thread, started. ClusterError, `what` and why, where the machine allows no more."""
    try:
        thread.start()
    except RuntimeError as error:
        raise ClusterError(f"{what}: {PROCESSES}") from error
    return thread


__all__ = ["PROCESSES", "started_thread"]
