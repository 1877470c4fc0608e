"""Ctrl-C that waits until a step is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Within, the first Ctrl-C is kept back and takes effect at the end; the second takes effect at once.

        @deferred_interrupt()
        def close(self) -> None: ...

    For the main thread, which alone is interrupted; in others it does nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    kept: list[FrameType | None] = []

    def keep(number: int, frame: FrameType | None) -> None:
        kept.append(frame)
        if len(kept) > 1:
            handler(number, frame)

    signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if len(kept) == 1:
            handler(signal.SIGINT, kept[0])


__all__ = ["deferred_interrupt"]
