"""Calls that a signal is to end."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import TypeVar


def interrupted_after(seconds: float, call: Callable[[], object]) -> None:
    """Call, and interrupt this process so many seconds after that began: on a loaded machine perhaps at once."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        call()
    finally:
        timer.join()


class Alarm(Exception):
    """What the handler of a signal other than Ctrl-C raises."""


T = TypeVar("T")


def interrupted_everywhere(
    modules: Sequence[ModuleType],
    prepare: Callable[[], T],
    call: Callable[[T], object],
    *,
    error: type[BaseException] = Alarm,
    number: signal.Signals = signal.SIGUSR1,
    every: int = 1,
    returns: bool = True,
) -> Iterator[tuple[str, T]]:
    """Run `call(prepare())` again and again; each time a signal's handler raises at another place of the modules' code.

    Those are all places where Python may run a handler: behind a call, where a function begins, where a loop goes on.
    Yields the place and what was prepared, once the exception was raised. every: of so many places one.  returns:
    where a function returns, too, which Python does only if C code has called it.
    """
    files = {module.__file__ for module in modules}
    for count in itertools.count(1, every):
        prepared = prepare()
        place, raised = _interrupted(files, lambda: call(prepared), count, error, number, returns)  # noqa: B023
        if place is None:
            assert count > 1, "nothing of these modules was called"
            return
        assert raised, f"{place}: the exception was lost"
        yield place, prepared


def _interrupted(
    files: set[str | None],
    call: Callable[[], object],
    count: int,
    error: type[BaseException],
    number: int,
    returns: bool,
) -> tuple[str | None, bool]:
    """Where the handler was run, at the place `count`, and whether its exception arrived."""
    monitoring, tool = sys.monitoring, 4
    events = monitoring.events
    place: str | None = None
    left, thread = count, threading.get_ident()

    def at(code: CodeType, offset: int, *rest: object) -> None:
        nonlocal left, place
        if code.co_filename in files and threading.get_ident() == thread:
            left -= 1
            if not left:
                line = next((line for begin, end, line in code.co_lines() if begin <= offset < end), None)
                place = f"{code.co_qualname}, line {line}"
                signal.raise_signal(number)

    def at_jump(code: CodeType, offset: int, destination: int) -> None:
        if destination < offset:
            at(code, offset)

    def handle(_number: int, _frame: object) -> None:
        raise error

    former = signal.signal(number, handle)
    monitoring.use_tool_id(tool, "interrupts")
    try:
        for event in (events.PY_START, events.PY_RESUME, events.PY_RETURN, events.C_RETURN):
            monitoring.register_callback(tool, event, at)
        monitoring.register_callback(tool, events.JUMP, at_jump)
        # C_RETURN comes with CALL
        wanted = events.PY_START | events.PY_RESUME | events.JUMP | events.CALL
        wanted |= events.PY_RETURN if returns else 0
        monitoring.set_events(tool, wanted)
        try:
            call()
        except error:
            return place, place is not None
        finally:
            monitoring.set_events(tool, 0)
    finally:
        monitoring.free_tool_id(tool)
        signal.signal(number, former)
    return place, False
