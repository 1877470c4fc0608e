"""`--time-limit`: limits the whole command.

Most of a command is Python in the main thread: an alarm interrupts it. A wait for another process
(`TimeLimit.waiting`) ends by itself, with an error that says more, so the alarm lets it finish for up to WAITS_S. A
thread handles the rest, such as a long library call in the main thread: it prints the error and ends the process. Its
child processes end when they notice that (`runtime/ray/supervisor.py`).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import click

from distxla.cli.failures import tell
from distxla.errors import TimeLimitError
from distxla.machine.library_threads import one_thread
from distxla.runtime.interrupts import deferred_interrupt
from distxla.targets.registry import host
from distxla.time_limit import MOST_S, TimeLimit, current_limit, time_limit

AGAIN_S = 0.02  # between retries of the alarm, while it may not interrupt
WAITS_S = 4.0  # that a wait which checks the limit itself may exceed it: it reports devices, and gets them back
STUCK_S = 0.3  # after the limit without Python code in the main thread: then the alarm cannot reach it
CLOSING_S = 20.0  # for taking down all that was started

time_limit_option = click.option(
    "--time-limit",
    type=click.FloatRange(0, MOST_S, min_open=True),
    metavar="S",
    help="Seconds for all that the command does; exit 5 beyond.",
)


class Expired(BaseException):
    """The limit has run out. A BaseException, so that no `except Exception` catches it."""


class LimitedCommand(click.Command):
    """A command whose option `time_limit`, if it has one, limits all of it."""

    def invoke(self, ctx: click.Context) -> Any:
        with enforced(ctx.params.get("time_limit"), as_json=bool(ctx.params.get("as_json"))):
            with nullcontext() if _evaluates(ctx) else one_thread(host().thread_variables):
                _import_numpy()
            return super().invoke(ctx)


def _evaluates(ctx: click.Context) -> bool:
    """Whether this process computes, by the reference."""
    return "reference" in (ctx.params.get("backend"), ctx.params.get("compare"))


def _import_numpy() -> None:
    """Import NumPy whole: interrupted within, its C code raises an ImportError, or goes on without a word."""
    limit = current_limit()
    with deferred_interrupt(), nullcontext() if limit is None else limit.waiting():
        importlib.import_module("ml_dtypes")  # which imports NumPy


@contextmanager
def enforced(seconds: float | None, *, as_json: bool = False) -> Iterator[None]:
    """TimeLimitError if the with-body takes longer. Only in the main thread can everything be interrupted."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        with time_limit(seconds):
            yield
        return
    with time_limit(seconds) as limit:
        assert limit is not None
        limit.place = "getting ready"  # outside of all phases: imports, mostly
        alarm = _Alarm(limit, as_json)
        try:
            try:
                alarm.set()
                yield
            finally:
                alarm.is_set = False  # from here on it raises nothing
        except Expired:
            assert alarm.error is not None
            raise alarm.error from None
        finally:
            alarm.remove()


class _Alarm:
    """Raises Expired in the main thread, once; ends the process where that has no effect."""

    def __init__(self, limit: TimeLimit, as_json: bool) -> None:
        self._limit, self._as_json = limit, as_json
        self.error: TimeLimitError | None = None
        self.is_set = False
        self._former_timer = 0.0, 0.0
        self._is_seen = False  # the main thread runs Python code; no Event, whose lock a second alarm would wait for
        self._removed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="distxla-time-limit", daemon=True)

    def set(self) -> None:
        self.is_set = self._limit.is_enforced = True
        self._former_hook: Callable[[Any], Any] = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        self._former = signal.signal(signal.SIGALRM, self._rings)
        self._begin = time.monotonic()
        self._former_timer = signal.setitimer(signal.ITIMER_REAL, max(1e-3, self._limit.end - self._begin), AGAIN_S)
        self._thread.start()

    def remove(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._former)
        left, interval = self._former_timer
        if left:  # another alarm was pending; its time is not extended
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - self._begin)), interval)
        sys.unraisablehook = self._former_hook
        self._removed.set()

    def _rings(self, number: int, frame: FrameType | None) -> None:
        limit = self._limit
        self._is_seen = True
        if not self.is_set or limit.is_told or not limit.is_over:
            return
        if limit.waits and time.monotonic() < limit.end + WAITS_S:
            return
        self.error = limit.error()
        raise Expired

    def _unraisable(self, found: Any) -> None:
        """Expired was raised where Python drops errors, such as in a destructor: raise it again."""
        if found.exc_type is Expired:
            self._limit.is_told = False
        else:
            self._former_hook(found)

    def _watch(self) -> None:
        if self._removed.wait(max(0.0, self._limit.end - time.monotonic()) + STUCK_S):
            return
        patience = (WAITS_S if self._limit.waits else 0.0) + (CLOSING_S if self._is_seen else 0.0)
        if not self._removed.wait(patience):
            _end(self.error or self._limit.error(), as_json=self._as_json)


def _end(error: TimeLimitError, *, as_json: bool) -> None:
    """Print the failure and end this process at once, from any thread."""
    try:
        tell(error, as_json=as_json)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(error.exit_status)


__all__ = ["LimitedCommand", "enforced", "time_limit_option"]
