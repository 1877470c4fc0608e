"""What the ledger of launches takes and gives, as plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from distxla.errors import DistxlaError
from distxla.jax.processes.launches import LaunchSite
from distxla.lazy_dataclass import dataclass, field

Key = tuple[tuple[int, ...], int]  # the members of a set of processes, and the ordinal of a call of them, from 0

MISMATCH: Final = "mismatch"
DEADLOCK: Final = "deadlock"
LOST: Final = "lost"
LATE: Final = "time-limit"
SKIPPED: Final = "skipped"

# what a late process does in the call at the head of its queue
WAITS: Final = "waits"  # for others
RUNS: Final = "runs"
PREPARES: Final = "prepares"  # it is not ready for it

_PREFIXES = ("jit_", "pjit_", "pmap_")  # that JAX puts before the names of functions


@dataclass(frozen=True)
class Called:
    """A process's part of a call. ordinal: from 0, of the calls of these members.  turn: the position among all calls
    of the process.  program: the owner's number: equal for programs with one fingerprint.  name: the module's.  site:
    the user's line.  is_native: whether the processes start it by themselves, once all have made it; else the owner
    does."""

    process: int
    members: tuple[int, ...]
    ordinal: int
    turn: int
    program: int
    name: str
    site: LaunchSite = LaunchSite()
    is_native: bool = False

    @property
    def key(self) -> Key:
        return self.members, self.ordinal

    @property
    def function(self) -> str:
        """The name of the user's function."""
        return function_of(self.name)

    @property
    def number(self) -> int:
        """As messages count calls: from 1."""
        return self.ordinal + 1

    def __str__(self) -> str:
        """`step (train.py:44)`."""
        return f"{self.function} ({place_of(self.site)})"


def function_of(name: str) -> str:
    """The user's function of a module's name: `step` of `jit_step`."""
    found = next((name[len(prefix) :] for prefix in _PREFIXES if name.startswith(prefix)), name)
    return "<lambda>" if found == "_lambda" else found


def doing_in(call: Called, doing: str) -> str:
    """What a process does in a call at the head of its queue, to follow "process 1: "."""
    if doing == WAITS:
        return f"it waits itself in {call}"
    what = "still runs" if doing == RUNS else "is not ready yet for"
    return f"it {what} its call {call.number}: {call}"


def place_of(site: LaunchSite) -> str:
    """`train.py:44`, `?` where nothing is known."""
    return f"{os.path.basename(site.file) or '?'}:{site.line}" if site.line else "?"


def apart_text(one: Called, other: Called) -> str:
    """`apart since call 3: process 0 at train.py:41, process 1 at train.py:54`."""
    places = [f"process {call.process} at {place_of(call.site)}" for call in (one, other)]
    return f"apart since call {one.number}: {', '.join(places)}"


@dataclass(frozen=True)
class Ending:
    """How a process has ended. how: "end": of its script; "raised": by an exception that nobody caught; "signal";
    "exit": without a word, as by os._exit; "lost": nothing is known but that its connection is gone.

    error: of "raised", in a line.  site: the user's line that raised it.  signal: its name.  status: of "exit".  where:
    `host 1 (name)`, where there are several.
    """

    how: str
    error: str = ""
    site: LaunchSite = LaunchSite()
    signal: str = ""
    status: int | None = None
    where: str = ""

    def __str__(self) -> str:
        """`was ended by SIGKILL`, `was ended by SIGKILL on host 1 (name)`."""
        where = f" on {self.where}" if self.where else ""
        if self.how == "raised":
            at = f" ({place_of(self.site)})" if self.site.line else ""
            return f"ends{where} with {self.error or 'an exception'}{at},"
        if self.how == "signal":
            return f"was ended by {self.signal or 'a signal'}{where}"
        if self.how == "exit":
            status = "" if self.status is None else f" with status {self.status}"
            return f"has left{where}{status} and no word" if status else f"has left{where} without a word"
        if self.how == "lost":
            return f"was lost with {self.where}, or the connection to that," if self.where else "was lost"
        return f"has ended{where}"


class Turn(NamedTuple):
    """Another call of one of two that differ, in which it calls what the other calls here. is_next: it comes later."""

    call: Called
    is_next: bool


@dataclass(frozen=True)
class Finding:
    """Why the members' call `key` will never run.

    kind: MISMATCH, DEADLOCK, LOST (a process that is needed has ended), LATE (the limit for that is over), SKIPPED (one
    can't run it).
    calls: of those that have called it, in order of processes.
    pair: of a mismatch, two calls of different programs.  turns: what tells that only the order differs.
    cycle: of a deadlock, the first call in the queue of each process, which waits for the process of the next.
    missing: those that are late, or that end or skip.  endings: of those that have ended.  why: of the one that skips.
    by_argument: whether that one has an argument of a call that failed, with this error.
    seconds: how long the others have waited, as far as LATE.
    behind: of late ones, the call at the head of their queues, if any, and what they do in it.
    apart: the first call of these members which they made from different lines.
    histories: the last calls of each process concerned, oldest first.
    """

    kind: str
    key: Key
    calls: tuple[Called, ...] = ()
    pair: tuple[Called, Called] | None = None
    turns: tuple[Turn, ...] = ()
    cycle: tuple[Called, ...] = ()
    missing: tuple[int, ...] = ()
    endings: Mapping[int, Ending] = field(default_factory=dict)
    why: DistxlaError | None = None
    seconds: float = 0.0
    apart: tuple[Called, Called] | None = None
    histories: Mapping[int, tuple[Called, ...]] = field(default_factory=dict)
    behind: Mapping[int, tuple[Called, str]] = field(default_factory=dict)
    by_argument: bool = False

    def last_before(self, process: int) -> Called | None:
        """The process's last call of these members before this one."""
        members, ordinal = self.key
        calls = [call for call in self.histories.get(process, ()) if call.members == members and call.ordinal < ordinal]
        return calls[-1] if calls else None


class Start(NamedTuple):
    """All members are ready: the call may run."""

    key: Key


class Verdict(NamedTuple):
    """The call will never run: for every member that has called it, or will."""

    key: Key
    finding: Finding


class Notice(NamedTuple):
    """A process waits in `call` for a late one, which is not ready for it, for so many seconds so far. behind: the call
    at the head of the late one's queue, in which it does what `doing` says; None: it has called nothing that is not
    over.  apart: as in Finding."""

    waiting: int
    late: int
    call: Called
    seconds: float
    behind: Called | None = None
    apart: tuple[Called, Called] | None = None
    doing: str = WAITS

    @property
    def is_busy(self) -> bool:
        """Whether the late one waits for no other."""
        return self.behind is None or self.doing != WAITS


class Seen(NamedTuple):
    """What the log of a process shows of its native calls.

    calls: those that were not shown before, oldest first.  turn: of the newest native call that it has reached: all
    that it made before are over in it; -1 for none.  issued: that call; None where it is not known.  is_done: whether
    it is over in the process, too.  missed: whether the log has lost calls that were not shown.
    """

    calls: tuple[Called, ...] = ()
    turn: int = -1
    issued: Key | None = None
    is_done: bool = False
    missed: bool = False


Decision = Start | Verdict | Notice

__all__ = [
    "DEADLOCK",
    "LATE",
    "LOST",
    "MISMATCH",
    "PREPARES",
    "RUNS",
    "SKIPPED",
    "WAITS",
    "Called",
    "Decision",
    "Ending",
    "Finding",
    "Key",
    "Notice",
    "Seen",
    "Start",
    "Turn",
    "Verdict",
    "apart_text",
    "doing_in",
    "function_of",
    "place_of",
]
