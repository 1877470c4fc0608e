"""The seam between calls of JAX and the ways in which several processes run one together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distxla.errors import ClusterError, DistxlaError
from distxla.lazy_dataclass import dataclass
from distxla.wire.checksums import Buffer

_MOST = 4096  # bytes


@dataclass(frozen=True)
class LaunchSite:
    """The user's line that calls a program; "" and 0 where it is not known. program: the name that the process has for
    the program; equal ones may have several."""

    file: str = ""
    line: int = 0
    function: str = ""
    program: str = ""

    def __str__(self) -> str:
        """train.py:47 in step."""
        where = f"{self.file.rpartition('/')[2] or '?'}:{self.line}"
        return f"{where} in {self.function}" if self.function else where

    def pack(self) -> bytes:
        parts = self.file[-1000:], str(self.line), self.function[-500:], self.program[:500]
        return "\0".join(parts).encode(errors="replace")

    @staticmethod
    def unpack(payload: Buffer) -> LaunchSite:
        """ClusterError where it is none."""
        parts = bytes(payload[:_MOST]).decode(errors="replace").split("\0")
        if len(parts) not in (3, 4) or not parts[1].isdecimal() or len(parts[1]) > 9:
            raise ClusterError("a launch without a place")
        return LaunchSite(parts[0], int(parts[1]), *parts[2:])


@dataclass(frozen=True)
class AttachedProgram:
    """A compiled program, as launches need it.

    program: the owner's number, from 1: the same in all processes.  set, members: the processes that have devices of
    it, and the owner's number for them.
    """

    program: int
    name: str
    set: int
    members: tuple[int, ...]


class Serving(Protocol):
    """The functions of this process that its devices call during a call."""

    @property
    def failure(self) -> DistxlaError | None:
        """Why the call has to end: one has raised."""

    def finish(self, stop: Callable[[], bool]) -> bool:
        """Once the devices are done: block until all functions have returned; False where `stop` says so first."""


class LaunchedExecutable(Protocol):
    """The parts of an executable that its launches use. is_native: whether each process issues its own part of calls,
    where it can."""

    launched: AttachedProgram
    is_native: bool

    def load(self) -> None:
        """Have it loaded on its devices; blocks. Nothing happens where it is."""

    def serving(self) -> AbstractContextManager[Serving]:
        """While its devices run it they are served. Its end may block until functions have returned, or raise their
        error."""


class Launch(Protocol):
    """A call on devices of several processes, of which this one has some; see also call_queue.Launch.

    verdict: why it will never run, maybe told while earlier calls run; None while nothing is.
    """

    verdict: DistxlaError | None

    def begin(self) -> None:
        """The call has its place among those of this process: the owner is told. May be called again."""

    def run(self, rows: NDArray[np.uint64], kept: list[Any]) -> None:
        """Block until the devices of this process are done; raises the verdict. rows: offsets of arguments and
        results, by device.  kept: memory that devices may use until then."""

    def skip(self, why: BaseException, *, by_argument: bool = False) -> None:
        """It will never run here: the other processes are told why. May be called again. by_argument: since a call
        failed whose result it takes."""


class Launches(Protocol):
    """Calls of this process, whose order is the order of the calls of each set of processes."""

    def of(self, executable: LaunchedExecutable, line: str = "") -> Launch:
        """By the user's line that this thread is in; the owner is told when it begins. line: as JAX tells it, "" where
        it does not. Never blocks."""


__all__ = ["AttachedProgram", "Launch", "LaunchSite", "LaunchedExecutable", "Launches", "Serving"]
