"""Ctrl-C that waits until a step is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_deferring = 0  # nested steps of the main thread


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Within, the first Ctrl-C is kept back and takes effect at the end; the second takes effect at once.

        @deferred_interrupt()
        def close(self) -> None: ...

    For the main thread, which alone is interrupted; in others it does nothing.
    """
    global _deferring
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    kept: list[FrameType | None] = []

    def keep(number: int, frame: FrameType | None) -> None:
        kept.append(frame)
        if len(kept) > 1 and callable(handler):
            handler(number, frame)

    outer = _deferring
    try:
        _deferring = outer + 1
        if callable(handler):
            signal.signal(signal.SIGINT, keep)
        yield
    finally:
        _deferring = outer
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
            if len(kept) == 1:
                handler(signal.SIGINT, kept[0])


def is_deferred() -> bool:
    """Whether the main thread is within such a step: what else interrupts it waits, too (`cli/stop_requests.py`)."""
    return _deferring > 0


__all__ = ["deferred_interrupt", "is_deferred"]
