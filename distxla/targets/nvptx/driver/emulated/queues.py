"""Streams, as lazy as a GPU may be: what is in a queue happens when somebody waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from distxla.lazy_dataclass import dataclass, field


@dataclass(eq=False)
class Stream:
    """A queue of operations that have yet to happen."""

    pending: deque[Callable[[], None]] = field(default_factory=deque)

    def add(self, operation: Callable[[], None]) -> None:
        self.pending.append(operation)

    def run(self) -> None:
        """Let all operations happen."""
        while self.pending:
            self.pending.popleft()()
