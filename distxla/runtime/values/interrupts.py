"""Defer Ctrl-C, SIGTERM and the time limit until a step is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_is_in_step = False  # the main thread
_late: list[Callable[[], object]] = []  # to be called at the end of the step


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Within, the first Ctrl-C is kept back and takes effect at the end; the second takes effect at once.

        @deferred_interrupt()
        def close(self) -> None: ...

    The command line defers SIGTERM and the time limit as well (`cli/stop_requests.py`). Of nested steps the outermost
    one defers. For the main thread, which alone is interrupted; in others it does nothing.
    """
    global _is_in_step
    if threading.current_thread() is not threading.main_thread() or _is_in_step:
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    kept: list[FrameType | None] = []

    def keep(number: int, frame: FrameType | None) -> None:
        kept.append(frame)
        if len(kept) > 1 and callable(handler):
            handler(number, frame)

    try:
        _is_in_step = True
        if callable(handler):
            signal.signal(signal.SIGINT, keep)
        yield
    finally:
        try:
            if callable(handler):
                signal.signal(signal.SIGINT, handler)
        finally:
            late = _late.copy()
            _late.clear()
            _is_in_step = False
        if callable(handler) and len(kept) == 1:
            handler(signal.SIGINT, kept[0])
        for call in late:
            call()


def is_deferred() -> bool:
    """Whether the main thread is within such a step."""
    return _is_in_step


def at_end_of_step(call: Callable[[], object]) -> None:
    """Have it called once the step is complete; for handlers of signals."""
    _late.append(call)
