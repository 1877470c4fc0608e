"""Calls of several processes, made up, and a ledger that is told of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger import Called, Key, Ledger
from distxla.jax.processes.ledger_facts import Decision, Ending, Finding, Notice, Start, Verdict

PROGRAMS = {"step": 1, "total": 2, "gather": 3, "scaled": 4, "scaled_by_3": 5, "save": 6, "f": 7, "g": 8, "h": 9}
KILLED = Ending("signal", signal="SIGKILL")


def made(process: int, members: Sequence[int], ordinal: int, function: str, line: int = 1, turn: int = 0) -> Called:
    """A call from train.py. function: a key of PROGRAMS; `scaled_by_3` is another program of the function `scaled`."""
    name = "jit_" + function.removesuffix("_by_3")
    return Called(
        process,
        tuple(members),
        ordinal,
        turn,
        PROGRAMS[function],
        name,
        LaunchSite("/home/me/train.py", line, "main"),
    )


class Told:
    """A ledger, and what it decided. Ordinals and turns are counted here."""

    def __init__(self, processes: int, stall_limit: float | None = None) -> None:
        self.ledger = Ledger(processes, stall_limit)
        self.decisions: list[Decision] = []
        self._ordinals: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
        self._turns: dict[int, int] = defaultdict(int)

    def call(self, process: int, members: Sequence[int], function: str, line: int = 1) -> Key:
        key = process, tuple(members)
        call = made(process, members, self._ordinals[key], function, line, self._turns[process])
        self._ordinals[key] += 1
        self._turns[process] += 1
        self.decisions += self.ledger.called(call)
        return call.key

    def ready(self, process: int, key: Key) -> None:
        self.decisions += self.ledger.ready(process, key)

    def end(self, process: int, how: Ending = KILLED) -> None:
        self.decisions += self.ledger.ended(process, how)

    def run(self, members: Sequence[int], function: str, line: int = 1) -> None:
        """A call of all these, up to its end."""
        keys = [self.call(p, members, function, line) for p in members]
        for process, key in zip(members, keys):
            self.ready(process, key)
        assert self.decisions.pop() == Start(keys[0])
        self.decisions += self.ledger.over(keys[0])

    @property
    def started(self) -> list[Key]:
        return [one.key for one in self.decisions if isinstance(one, Start)]

    @property
    def findings(self) -> list[Finding]:
        return [one.finding for one in self.decisions if isinstance(one, Verdict)]

    @property
    def finding(self) -> Finding:
        (found,) = self.findings
        return found

    def look(self, now: float) -> list[Notice]:
        found = self.ledger.look(now)
        self.decisions += found
        return [one for one in found if isinstance(one, Notice)]
