"""Streams and events, as lazy as a GPU may be: what is in a queue happens when somebody waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distxla.lazy_dataclass import dataclass, field


@dataclass(eq=False)
class Stream:
    """A queue. put, done: how many operations were put into it, and have happened."""

    pending: deque[Callable[[], None]] = field(default_factory=deque)
    put: int = 0
    done: int = 0

    def add(self, operation: Callable[[], None]) -> None:
        self.pending.append(operation)
        self.put += 1

    def run(self, until: int | None = None) -> None:
        """Let all operations happen, or those up to a number of them."""
        end = self.put if until is None else until
        while self.done < end:
            operation = self.pending.popleft()
            self.done += 1
            operation()


@dataclass(eq=False)
class Event:
    """A place in a stream: behind its first `number` operations. None: not recorded."""

    stream: Stream | None = None
    number: int = 0

    @property
    def has_passed(self) -> bool:
        return self.stream is None or self.stream.done >= self.number

    def run(self) -> None:
        if self.stream is not None:
            self.stream.run(self.number)


__all__ = ["Event", "Stream"]
