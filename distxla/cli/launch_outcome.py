"""How a launch of several processes ends: which one failed first, why, and with which status. Events in; no clock."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from distxla.errors import DeadlockError, DistxlaError, ReplicaLostError, ReplicationError, TimeLimitError
from distxla.jax.processes.told_errors import unpack_error
from distxla.wording import processes_named

GRACE_S: Final = 5.0  # for the others, once one has failed
RELATED_S: Final = 10.0  # after a verdict a failure is of it, whatever the script raises then
SOON_S: Final = 1.0  # a verdict may be told later than the failure that it leads to
RAISED: Final = 1  # Python's exit status
DISAGREE: Final = DeadlockError.exit_status
MOST_VERDICTS: Final = 8  # that are remembered
MOST_REASON: Final = 200  # characters; the whole is above
_TOLD: Final = re.compile(r"distxla: ([\w-]+): ")
OWNER_LOST: Final = "distxla: lost: the process that owns the devices"  # as processes raise it
KINDS: Final = (DeadlockError, ReplicaLostError, TimeLimitError)


class Failure(NamedTuple):
    """The first one. process: None for the owner of the devices, and for a host: `how` then begins with which it is.
    error: what it raised, "" where it is not known."""

    process: int | None
    how: str
    error: str
    at: float


class Outcome:
    """Of so many processes, with so many devices each. statuses: wait statuses of those that have ended.  ended: those
    that the launcher did."""

    def __init__(self, processes: int, devices: int = 1) -> None:
        self.processes = processes
        self._devices = devices
        self.statuses: dict[int, int] = {}
        self.ended: set[int] = set()
        self.lost: set[int] = set()  # with their hosts
        self.first: Failure | None = None
        self.verdicts: list[tuple[DistxlaError, float]] = []  # and when they came
        self.errors: dict[int, str] = {}  # what processes have raised
        self._came: set[int] = set()  # those that have used their devices
        self._over: set[int] = set()  # those whose scripts have come to their end
        self._coming: set[int] = set()  # those of them that reach for their devices all the same

    @property
    def running(self) -> list[int]:
        return [
            process for process in range(self.processes) if process not in self.statuses and process not in self.lost
        ]

    @property
    def ends_at(self) -> float | None:
        """When the processes that still run are ended; None: not yet."""
        return None if self.first is None else self.first.at + GRACE_S

    def has_ended(self, process: int, status: int, now: float) -> None:
        """status: as `os.wait` gives it."""
        self.statuses[process] = status
        self._over.add(process)
        self._coming.discard(process)
        if status and process not in self.ended:
            self._fail(process, _how(status), now)

    def script_has_ended(self, told: dict[str, Any], now: float) -> None:
        """What a process says itself at the end of its script, behind which JAX waits for the others."""
        process = told["process"]
        self._over.add(process)
        if told["attaches"]:
            self._coming.add(process)
        if told["how"] == "raised":
            self._raised(process, told, now)

    def _raised(self, process: int, told: dict[str, Any], now: float) -> None:
        error, site = str(told["error"]), str(told.get("site") or "")
        self.errors.setdefault(process, f"{error} ({site})" if site else error)
        self._fail(process, "raised an exception", now)

    def look(self, now: float) -> None:
        """Whether processes wait in vain for one that has not used its devices. To be called once all is told that has
        been said so far: a process may have come before its script ended, and be told of in another order."""
        missing = sorted(self._over - self._came - self._coming)
        if missing and self._came - self._over:
            waits = "waits" if len(self._came - self._over) == 1 else "wait"
            waiting = processes_named(self._came - self._over)
            self._fail(missing[0], f"ended before it had used its devices, for which {waiting} {waits}", now)

    def tell(self, news: dict[str, Any], now: float) -> None:
        """What the owner of the devices says."""
        if (verdict := news.get("verdict")) is not None:
            self.verdicts = [*self.verdicts[1 - MOST_VERDICTS :], (unpack_error(verdict), now)]
        if (ended := news.get("ended")) is not None and ended["how"] == "raised":
            self._raised(ended["process"], ended, now)
        if ended is not None and ended["how"] == "signal":  # its guard, on another host, may tell later
            self._fail(ended["process"], f"was ended by {ended['signal']}", now)
        if (came := news.get("came")) is not None:
            self._came.add(came)
        if "attached" in news:
            self._came = set(range(self.processes))

    def host_is_lost(self, name: str, processes: Iterable[int], now: float) -> None:
        """The connection to a host has ended, with these processes, whatever has become of them."""
        lost = sorted(processes)
        if not lost:
            return
        self.lost.update(lost)
        self._over.update(lost)
        self._fail(None, f"{name} with {processes_named(lost)} can't be reached any more", now)

    def owner_has_ended(self, status: int, now: float) -> None:
        """The owner of the devices has ended, which others still needed. status: as `subprocess` gives it. A process
        that raises the loss may be told of before."""
        if self.first is not None and OWNER_LOST in self.first.error and now - self.first.at <= RELATED_S:
            self.first = None
        how = _how(-status if status < 0 else status << 8)
        self._fail(None, f"the process that owns the devices {how}", now)

    def _fail(self, process: int | None, how: str, now: float) -> None:
        if self.first is None:
            error = "" if process is None else self.errors.get(process, "")
            self.first = Failure(process, how, error, now)

    def status(self) -> int:
        """The launcher's exit status."""
        first = self.first
        if first is None:
            return 0
        if (verdict := self.verdict()) is not None:
            return DISAGREE if isinstance(verdict, ReplicationError) else verdict.exit_status
        if first.process is None:
            return ReplicaLostError.exit_status
        found = self.statuses.get(first.process)
        if not found or first.process in self.ended:
            return RAISED
        return os.waitstatus_to_exitcode(found) if not found & 0x7F else 128 + (found & 0x7F)

    def verdict(self) -> DistxlaError | None:
        """The one that the first failure is of: a disagreement, on calls or on values, a process that is late, or the
        loss of a device. Where a process has ended, its own status counts, whatever that means for the others."""
        first = self.first
        if first is None:
            return None
        for verdict, at in reversed(self.verdicts):
            is_of_process = isinstance(verdict, ReplicaLostError) and verdict.diagnosis is not None
            is_counted = isinstance(verdict, KINDS) or self._is_apart(verdict)
            if is_of_process or at > first.at + SOON_S or not is_counted:
                continue
            if first.at - at <= RELATED_S or _summary(verdict) in first.error:
                return verdict
        return None

    def _is_apart(self, verdict: DistxlaError) -> bool:
        """Whether it says that processes have other values; devices of one process may have, too, which is no
        disagreement of processes."""
        if not isinstance(verdict, ReplicationError):
            return False
        found = verdict.devices[:1] + verdict.differing
        return len({device // self._devices for device in found}) > 1

    def lines(self, said: bytes) -> list[str]:
        """What is to be told at the end. said: what processes have written to stderr last."""
        if self.first is None:
            return []
        lines = []
        process, how, error, failed_at = self.first
        related = [verdict for verdict, at in self.verdicts if at >= failed_at - RELATED_S]
        verdict = self.verdict() or (related[0] if related else None)
        if verdict is not None and _summary(verdict).encode() not in said:
            lines.append(f"error: {verdict.code}: {verdict.message}")
            if verdict.diagnosis is not None and (text := verdict.diagnosis.text()):
                lines += text.split("\n")
        if process is None:
            lines.append(f"error: lost: {how}")
        elif self.verdict() is None:
            own = _TOLD.search(error)  # an error of distxla's, which the process has shown
            reason = f": {own[1]}, as told above" if own is not None else f": {error[:MOST_REASON]}" if error else ""
            lines.append(f"error: process {process} failed first: it {how}{reason}")
        elif verdict is not None and not lines:
            lines.append(f"error: {verdict.code}: as told above; process {process} failed first")
        if self.ended:
            were = "was" if len(self.ended) == 1 else "were"
            lines.append(f"note: {processes_named(self.ended)} {were} ended, {GRACE_S:g} s after the first failure")
        return lines

    def as_json(self, status: int) -> dict[str, Any]:
        """One object."""
        verdict, first = self.verdict(), self.first
        return {
            "exit_status": status,
            "first_failure": None
            if first is None
            else {"process": first.process, "how": first.how, "error": first.error or None},
            "processes": [
                {
                    "process": process,
                    "status": self._code(process),
                    "error": self.errors.get(process),
                    "ended_by_launcher": process in self.ended,
                }
                for process in range(self.processes)
            ],
            "error": None
            if verdict is None
            else {"code": verdict.code, "message": verdict.message, "notes": list(getattr(verdict, "__notes__", ()))},
            "diagnosis": None if verdict is None or verdict.diagnosis is None else verdict.diagnosis.as_json(),
        }

    def _code(self, process: int) -> int | None:
        found = self.statuses.get(process)
        return None if found is None else os.waitstatus_to_exitcode(found)


def _summary(error: DistxlaError) -> str:
    return error.message.partition("\n")[0]


def _how(status: int) -> str:
    """`exited with status 3`, `was ended by SIGKILL`; status: as `os.wait` gives it."""
    number = status & 0x7F
    if not number:
        return f"exited with status {status >> 8}"
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"was ended by signal {number}"


__all__ = ["GRACE_S", "KINDS", "RELATED_S", "Failure", "Outcome"]
