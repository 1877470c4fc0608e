"""Processes that issue calls by themselves, their logs and boards, made up, and a ledger that sees of them what an
owner does: logs at some moments, frames later than they were sent."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from distxla.errors import ClusterError
from distxla.jax.processes.ledger import Ledger
from distxla.jax.processes.ledger_facts import Called, Decision, Ending, Finding, Key, Seen, Start, Verdict
from distxla.lazy_dataclass import replace
from tests.jax.processes.ledger_cases import KILLED, made

Script = Sequence[tuple[tuple[int, ...], str]]  # members, function
BY_OWNER = ("save", "h")  # functions whose calls the owner starts
LOG = 4  # calls that a log keeps


class Board:
    """Of a set: who has reached a call, and whether it was refused."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members
        self.program: dict[int, int] = {}  # by ordinal, as of the first
        self.arrived: defaultdict[int, set[int]] = defaultdict(set)
        self.refused: set[int] = set()

    def arrive(self, call: Called) -> None:
        if call.ordinal not in self.refused and self.program.setdefault(call.ordinal, call.program) == call.program:
            self.arrived[call.ordinal].add(call.process)

    def is_complete(self, ordinal: int) -> bool:
        return len(self.arrived[ordinal]) == len(self.members)

    def refuse(self, ordinal: int) -> bool:
        if not self.is_complete(ordinal):
            self.refused.add(ordinal)
        return ordinal in self.refused


class Process:
    """Runs its script: submits up to `ahead` calls before the first of them is over. A native call that is the only one
    is issued at once, and told by the log alone, as all calls are that are native and its own."""

    def __init__(self, number: int, script: Script, ahead: int) -> None:
        self.number, self.ahead = number, ahead
        self.left = deque((members, function) for members, function in script if number in members)
        self.queue: deque[Called] = deque()
        self.is_issued = False  # the first of the queue
        self.log: list[Called | None] = []  # None: by frames
        self.shown = 0
        self.newest: Called | None = None  # native one that it has reached
        self.is_done = False  # with that
        self.ordinals: defaultdict[tuple[int, ...], int] = defaultdict(int)
        self.outbox: deque[Callable[[], list[Decision]]] = deque()
        self.undecided: set[Key] = set()  # that it has skipped: it issues nothing until it knows what becomes of them
        self.has_ended = False


class NativeRun:
    """All processes, their boards, and the ledger; what happens next is drawn at random."""

    def __init__(
        self,
        scripts: Sequence[Script],
        ahead: int,
        seed: int,
        dies: tuple[int, int] | None = None,
        skips: float = 0.0,
    ) -> None:
        """dies: a process, and after how many steps of all.  skips: how probably a queue's call can't run."""
        self.skips = skips
        self.boards: dict[tuple[int, ...], Board] = {}
        self.ledger = Ledger(
            len(scripts),
            refuse=lambda key, is_reached: self._board(key[0]).refuse(key[1]),
            is_complete=lambda key: self._board(key[0]).is_complete(key[1]),
        )
        self.processes = [Process(p, script, ahead) for p, script in enumerate(scripts)]
        self.random, self.dies, self.steps = random.Random(seed), dies, 0
        self.started: list[Key] = []  # by the owner
        self.findings: dict[Key, Finding] = {}

    @property
    def ran(self) -> list[Key]:
        """Native calls that have run."""
        return [(b.members, k) for b in self.boards.values() for k in sorted(b.arrived) if b.is_complete(k)]

    def go(self) -> None:
        while not all(process.has_ended and not process.outbox for process in self.processes):
            self.steps += 1
            if self.dies is not None and self.steps == self.dies[1]:
                self._end(self.processes[self.dies[0]], KILLED)
            choices = [step for process in self.processes for step in self._steps(process)]
            choices += [self._over] if self.started else []
            if choices:
                self.random.choice(choices)()
            if not choices or self.random.random() < 0.2:
                assert self.pull() or choices, "nothing can go on"

    def _board(self, members: tuple[int, ...]) -> Board:
        return self.boards.setdefault(members, Board(members))

    def _steps(self, process: Process) -> list[Callable[[], object]]:
        found: list[Callable[[], object]] = [lambda: self._deliver(process)] if process.outbox else []
        if process.has_ended:
            return found
        if process.left and len(process.queue) < process.ahead:
            found.append(lambda: self._call(process))
        first = process.queue[0] if process.queue else None
        if first is not None and not process.is_issued and not process.undecided:
            found.append(lambda: self._come_to(process))
        runs = first is not None and process.is_issued and first.is_native
        if first is not None and runs and self._board(first.members).is_complete(first.ordinal):
            found.append(lambda: self._done(process))
        if not process.left and not process.queue and not process.undecided:
            found.append(lambda: self._end(process, Ending("end")))
        return found

    def _call(self, process: Process) -> None:
        members, function = process.left.popleft()
        ordinal = process.ordinals[members]
        process.ordinals[members] += 1
        call = made(process.number, members, ordinal, function, turn=len(process.log))
        call = replace(call, is_native=function not in BY_OWNER)
        by_itself = call.is_native and not process.queue and not process.undecided
        is_logged = by_itself or (call.is_native and len(members) == 1)
        process.log.append(call if is_logged else None)
        if not is_logged:
            process.outbox.append(lambda: self.ledger.called(call))
        if call.key in self.findings:  # it was told before
            return
        process.queue.append(call)
        if by_itself:
            self._issue(process)

    def _issue(self, process: Process) -> None:
        call = process.queue[0]
        process.is_issued = True
        if call.is_native:
            process.newest, process.is_done = call, False
            self._board(call.members).arrive(call)
        else:
            process.outbox.append(lambda: self.ledger.ready(process.number, call.key))

    def _come_to(self, process: Process) -> None:
        """The queue has reached its first call."""
        if self.random.random() >= self.skips:
            self._issue(process)
            return
        call = process.queue.popleft()
        if len(call.members) > 1 or not call.is_native:
            process.undecided.add(call.key)
            process.outbox.append(lambda: self.ledger.skipped(process.number, call.key, ClusterError("no memory")))

    def _done(self, process: Process) -> None:
        process.queue.popleft()
        process.is_issued, process.is_done = False, True

    def _over(self) -> None:
        key = self.started.pop(self.random.randrange(len(self.started)))
        for number in key[0]:
            process = self.processes[number]
            if process.queue and process.queue[0].key == key:
                process.queue.popleft()
                process.is_issued = False
        self._take(self.ledger.over(key))

    def _end(self, process: Process, how: Ending) -> None:
        if not process.has_ended:
            process.has_ended = True
            process.outbox.append(lambda: self.ledger.ended(process.number, how))

    def _deliver(self, process: Process) -> None:
        self.pull()
        self._take(process.outbox.popleft()())

    def pull(self) -> bool:
        """Show the ledger the logs; whether it has decided something."""
        logs = {process.number: self._seen(process) for process in self.processes}
        found = self.ledger.seen(logs)
        self._take(found)
        return bool(found)

    @staticmethod
    def _seen(process: Process) -> Seen:
        begin = max(process.shown, len(process.log) - LOG)
        missed, process.shown = begin > process.shown, len(process.log)
        calls = tuple(call for call in process.log[begin:] if call is not None)
        newest = process.newest
        if newest is None:
            return Seen(calls, missed=missed)
        return Seen(calls, newest.turn, newest.key, process.is_done, missed)

    def _take(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self.started.append(decision.key)
            elif isinstance(decision, Verdict):
                assert decision.key not in self.findings
                self.findings[decision.key] = decision.finding
                for process in self.processes:
                    self._leave(process, decision.key)

    @staticmethod
    def _leave(process: Process, key: Key) -> None:
        if process.queue and process.queue[0].key == key:
            process.is_issued = False
        process.queue = deque(call for call in process.queue if call.key != key)
        process.undecided.discard(key)
