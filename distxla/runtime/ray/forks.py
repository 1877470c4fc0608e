"""A forked child of a process that has joined a Ray: it must leave Ray to its parent.

Ray's objects have threads that the child lacks. Its exit handler would wait for them for ever, as would the destructors
of its library's static objects; others use what is not there.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from functools import cache
from typing import Any


@cache
def watch_forks() -> None:
    """From now on forked children leave Ray alone."""
    os.register_at_fork(after_in_child=_leave)


def _leave() -> None:
    """Take Ray's exit handler away, and keep its objects until the process ends, which it does without destructors of
    static objects once Python has ended."""
    worker: Any = sys.modules.get("ray._private.worker")
    state: Any = sys.modules.get("ray._private.state")
    if worker is None:
        return
    atexit.unregister(worker.shutdown)
    for kept in (worker.global_worker, getattr(state, "state", None)):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    libc = ctypes.CDLL(None)
    # They run in reverse order, before all that were registered before the fork, with the exit status as the argument.
    for last in (libc._exit, libc.fcloseall):
        libc.on_exit(last, None)


__all__ = ["watch_forks"]
