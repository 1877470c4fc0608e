"""`--time-limit`: limits the whole command.

Most of a command is Python in the main thread: an alarm interrupts it (`stop_requests.py`). A wait for another process
(`TimeLimit.waiting`) ends by itself, with an error that says more, so the alarm lets it finish for up to WAITS_S. A
thread handles the rest, such as a long library call in the main thread: it prints the error and ends the process. Its
child processes end when they notice that (`runtime/ray/supervisor.py`).
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from distxla import clock
from distxla.cli.failures import tell
from distxla.cli.stop_requests import stops
from distxla.errors import TimeLimitError
from distxla.machine.library_threads import one_thread
from distxla.runtime.values.interrupts import deferred_interrupt
from distxla.targets.registry import host
from distxla.time_limit import MOST_S, TimeLimit, current_limit, time_limit

WAITS_S = 4.0  # that a wait which checks the limit itself may exceed it: it reports devices, and gets them back
STUCK_S = 0.3  # after the limit without Python code in the main thread: then the alarm cannot reach it
CLOSING_S = 20.0  # for taking down all that was started

time_limit_option = click.option(
    "--time-limit",
    type=click.FloatRange(0, MOST_S, min_open=True),
    metavar="S",
    help="Seconds for all that the command does; exit 5 beyond.",
)


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
        limit.is_enforced = True
        watch = _Watch(limit, as_json)
        with stops.handled(), watch, stops.limited(limit.end - clock.now(), watch.expired):
            try:
                yield
            except TimeLimitError:
                raise
            except BaseException as error:
                if limit.told is None or isinstance(stops.first, int):  # Ctrl-C or SIGTERM came first
                    raise
                raise limit.told.with_traceback(error.__traceback__) from None
            if isinstance(stops.first, TimeLimitError):  # the alarm's exception was dropped
                raise stops.first


class _Watch:
    """Says when the alarm may interrupt; a thread of its own ends the process where that has no effect."""

    def __init__(self, limit: TimeLimit, as_json: bool) -> None:
        self._limit, self._as_json = limit, as_json
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="distxla-time-limit", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def expired(self) -> TimeLimitError | None:
        """Called by the alarm. The error, unless there is one already, or a wait will make a better one."""
        limit = self._limit
        if limit.told is not None or not limit.is_over:
            return None
        if limit.waits and clock.now() < limit.end + WAITS_S:
            return None
        return limit.error()

    def _watch(self) -> None:
        if self._ended.wait(max(0.0, self._limit.end - clock.now()) + STUCK_S):
            return
        runs_python = stops.rung_at >= self._limit.end
        patience = (WAITS_S if self._limit.waits else 0.0) + (CLOSING_S if runs_python else 0.0)
        if not self._ended.wait(patience):
            end_process(self._limit.told or self._limit.error(), as_json=self._as_json)


def end_process(error: TimeLimitError, *, as_json: bool) -> None:
    """Print the failure and end this process at once, from any thread; not while the main thread tells how it ended."""
    if not stops.may_tell():
        return
    try:
        tell(error, as_json=as_json)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(error.exit_status)


__all__ = ["LimitedCommand", "end_process", "enforced", "time_limit_option"]
