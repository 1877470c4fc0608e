"""The ledger of launches: the n-th call of a set of processes must be of one program in all of them.

Events in, decisions out. No thread, socket or clock is in here, so every interleaving can be tested in one process; the
owner's OwnedCalls keeps it under a lock and does what it decides.

A process runs its calls in the order in which it makes them. The first one that is not over is at the head of its
queue; it is ready when the process has come to it. Processes whose heads wait for one another in a circle never go on.

A native call is started by the last process that reaches it, not by the owner, which sees of it what the processes'
logs show (`seen`), later than it happens, or nothing. So it may have started when it is to be refused: that is asked.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from distxla.diagnosis.graph import Clauses, all_of, find_deadlock
from distxla.errors import ClusterError, DistxlaError
from distxla.jax.processes.ledger_facts import (
    DEADLOCK,
    LATE,
    LOST,
    MISMATCH,
    PREPARES,
    RUNS,
    SKIPPED,
    WAITS,
    Called,
    Ending,
    Finding,
    Key,
    Notice,
    Seen,
    Start,
    Turn,
    Verdict,
)
from distxla.wording import processes_named

NOTICE_S: Final = 1.0  # of waiting for a late process until it is said; then twice as long each time
MOST_KEPT: Final = 64  # calls of a process that are remembered
_SURE: Final = 160  # characters at the end of a file's path that a log keeps in any case


class _Call:
    """A call of a set, from the first process that makes it until it is over, or refused and known to all."""

    def __init__(self, key: Key) -> None:
        self.members, self.ordinal = self.key = key
        self.made: dict[int, Called] = {}
        self.ready: set[int] = set()
        self.left: set[int] = set()  # in which it is over, of a native one
        self.is_native = False  # in one of them at least
        self.is_started = False
        self.is_refused = False

    @property
    def is_open(self) -> bool:
        return not (self.is_started or self.is_refused)

    @property
    def missing(self) -> list[int]:
        return [p for p in self.members if p not in self.made]


class _Wait:
    """A process's wait at the head of its queue for late ones."""

    def __init__(self, key: Key, now: float) -> None:
        self.key, self.since, self.next_notice = key, now, NOTICE_S


class Ledger:
    """processes: how many there are.  stall_limit: seconds after which a late process is a fault; None: never.
    refuse: keeps a call, to which some process has come or none, from being started, whatever its processes do from
    then on; False where it was started before.
    is_complete: whether all members have reached a native call of several, which is started then.

    apart: by set, its first call of one program from different lines: where a process has skipped a call, or made one
    more, that shows before anything differs.
    """

    def __init__(
        self,
        processes: int,
        stall_limit: float | None = None,
        refuse: Callable[[Key, bool], bool] = lambda key, is_reached: True,
        is_complete: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        self.processes, self.stall_limit, self.refuse, self.is_complete = processes, stall_limit, refuse, is_complete
        self.apart: dict[tuple[int, ...], tuple[Called, Called]] = {}
        self._told_apart: set[tuple[int, ...]] = set()
        self._calls: dict[Key, _Call] = {}
        self._queues: dict[int, dict[Key, Called]] = {p: {} for p in range(processes)}
        self._heads: Counter[tuple[int, ...]] = Counter()  # sets of several of the calls at the heads of queues
        self._kept: dict[int, deque[Called]] = {p: deque(maxlen=MOST_KEPT) for p in range(processes)}
        self._next: dict[tuple[int, tuple[int, ...]], int] = {}
        self._turns_seen: dict[int, int] = dict.fromkeys(range(processes), -1)  # of the newest native call, by process
        self._missed: set[int] = set()  # processes of which some native calls were not seen
        self._endings: dict[int, Ending] = {}
        self._waits: dict[int, _Wait] = {}

    # --- events

    def called(self, call: Called) -> list[Start | Verdict]:
        """A process says that it has made a call. ClusterError where it can't be its next one."""
        self._require_next(call)
        found = self._enter(call)
        if found is None:
            return []
        decisions = self._compared(found, call)
        return decisions or (self._circles() if next(iter(self._queues[call.process]), None) == call.key else [])

    def ready(self, process: int, key: Key) -> list[Start | Verdict]:
        """A process has reached this call, which the owner starts; all that it made before are over."""
        found = self._calls.get(key)
        if found is None or not found.is_open or process not in found.made:
            return []
        found.ready.add(process)
        if found.is_native or len(found.ready) < len(found.members):
            return []
        found.is_started = True
        return [Start(key)]

    def seen(self, logs: Mapping[int, Seen]) -> list[Start | Verdict]:
        """What the logs of these processes show."""
        entered = []
        for process, log in logs.items():
            if log.missed:
                self._missed.add(process)
            self._turns_seen[process] = max(self._turns_seen[process], *(call.turn for call in log.calls), log.turn)
            for call in log.calls:
                following = call.process, call.members
                self._next[following] = max(self._next.get(following, 0), call.ordinal + 1)
                if call.turn < log.turn or (call.turn == log.turn and log.is_done):
                    self._has_run(call)
                elif self._enter(call) is not None:
                    entered.append(call)
            self._come_to(process, log.issued)
        for found in self._calls.values():
            self._look_at(found)
        has_moved = [self._leave_until(process, log) for process, log in logs.items()]
        decisions: list[Start | Verdict] = []
        for call in entered:
            judged = self._calls.get(call.key)
            if judged is not None and judged.is_open:
                decisions += self._compared(judged, call)
        return [*decisions, *self._circles()] if entered or any(has_moved) else decisions

    def seen_apart(self, one: Called, other: Called) -> None:
        """The first call of their set, as far as known, which two processes made from different lines."""
        known = self.apart.get(one.members)
        if known is None or one.ordinal < known[0].ordinal:
            self.apart[one.members] = (one, other) if one.process < other.process else (other, one)

    def made(self, process: int, key: Key) -> Called | None:
        """A process's part of a call that is not over, as far as known."""
        found = self._calls.get(key)
        return None if found is None else found.made.get(process)

    def over(self, key: Key) -> list[Start | Verdict]:
        """The call has run, or failed while it ran."""
        found = self._calls.pop(key, None)
        if found is None:
            return []
        self._leave_queues(found)
        return self._circles()

    def skipped(self, process: int, key: Key, why: DistxlaError, *, by_argument: bool = False) -> list[Start | Verdict]:
        """A process can't run this call. by_argument: since a call failed whose result it takes."""
        found = self._calls.get(key)
        if found is None or not found.is_open:
            return []
        return self._refused(found, SKIPPED, missing=(process,), why=why, by_argument=by_argument)

    def ended(self, process: int, how: Ending) -> list[Start | Verdict]:
        """A process has ended. Calls that run already go on."""
        if process in self._endings:
            return []
        self._endings[process] = how
        decisions: list[Start | Verdict] = []
        for found in [call for call in self._calls.values() if process in call.members]:
            if found.is_native and found.members == (process,):  # nobody waits for it
                self._leave_queues(found)
                del self._calls[found.key]
            elif found.is_open:
                decisions += self._refused(found, LOST, missing=(process,))
            elif found.is_refused:
                self._forget(found)
        return decisions

    def look(self, now: float) -> list[Notice | Verdict]:
        """What is to be said of late processes. now: in seconds, of any clock."""
        decisions: list[Notice | Verdict] = []
        for process in range(self.processes):
            found = self._head(process)
            late = [] if found is None else self._late_for(process, found)
            if found is None or not late:
                self._waits.pop(process, None)
                continue
            wait = self._waits.get(process)
            if wait is None or wait.key != found.key:
                wait = self._waits[process] = _Wait(found.key, now)
            seconds = now - wait.since
            behind = {p: self._at_head(p) for p in late}
            if seconds >= wait.next_notice:
                while wait.next_notice <= seconds:
                    wait.next_notice *= 2
                call = found.made[process]
                apart = self.apart.get(found.members)
                decisions += [Notice(process, p, call, seconds, one[0], apart, one[1]) for p, one in behind.items()]
            at_fault = tuple(p for p in late if not self._waits_for_others(p))
            if self.stall_limit is not None and seconds >= self.stall_limit and at_fault:
                found_behind = {p: (call, doing) for p, (call, doing) in behind.items() if call is not None}
                refused = self._refused(found, LATE, missing=at_fault, seconds=seconds, behind=found_behind)
                decisions += [decision for decision in refused if isinstance(decision, Verdict)]
        return decisions

    def history(self, process: int, last: int = 16) -> list[Called]:
        """The last calls of a process, oldest first."""
        return list(self._kept[process])[-last:]

    def turns_of(self, one: Called, other: Called) -> tuple[Turn, ...] | None:
        """What tells that only the order of two calls that differ does; None where the next calls may tell it yet."""
        found = tuple(self._turns(one, other))
        if found or any(call.process in self._endings for call in (one, other)):
            return found
        return None if self.yet_to_call(one, other) else ()

    def yet_to_call(self, *calls: Called) -> list[int]:
        """The processes of these calls that have not made the next ones of their sets."""
        return [call.process for call in calls if self._next[call.process, call.members] <= call.ordinal + 1]

    # --- decisions

    def _refused(
        self,
        found: _Call,
        kind: str,
        *,
        pair: tuple[Called, Called] | None = None,
        turns: tuple[Turn, ...] = (),
        cycle: tuple[Called, ...] = (),
        missing: tuple[int, ...] = (),
        why: DistxlaError | None = None,
        seconds: float = 0.0,
        behind: Mapping[int, tuple[Called, str]] | None = None,
        by_argument: bool = False,
    ) -> list[Start | Verdict]:
        """The verdict on this call, and those on circles that show now that it is out of the way; nothing where it was
        started before."""
        verdicts = self._refuse(found, kind, pair, turns, cycle, missing, why, seconds, behind, by_argument)
        return [*verdicts, *self._circles()] if verdicts else []

    def _refuse(
        self,
        found: _Call,
        kind: str,
        pair: tuple[Called, Called] | None,
        turns: tuple[Turn, ...],
        cycle: tuple[Called, ...],
        missing: tuple[int, ...],
        why: DistxlaError | None,
        seconds: float,
        behind: Mapping[int, tuple[Called, str]] | None = None,
        by_argument: bool = False,
    ) -> list[Verdict]:
        if found.is_started or (not self.refuse(found.key, bool(found.ready)) and found.is_native):
            found.is_started = True
            return []
        concerned = sorted({*found.members, *(call.process for call in cycle)})
        finding = Finding(
            kind,
            found.key,
            tuple(found.made[p] for p in sorted(found.made)),
            pair,
            turns,
            cycle,
            missing,
            {p: self._endings[p] for p in concerned if p in self._endings},
            why,
            seconds,
            self.apart.get(found.members),
            {p: tuple(self.history(p)) for p in concerned},
            behind or {},
            by_argument,
        )
        found.is_refused = True
        if found.members in self.apart:
            self._told_apart.add(found.members)
        self._leave_queues(found)
        self._forget(found)
        return [Verdict(found.key, finding)]

    def _circles(self) -> list[Start | Verdict]:
        """Refuse the first calls of processes that wait for one another in a circle, until there is none."""
        verdicts: list[Start | Verdict] = []
        while True:
            waits = self._waiting_heads() if len(self._heads) > 1 else {}
            deadlock = find_deadlock(waits, ()) if len(waits) > 1 else None
            if deadlock is None or not deadlock.cycles:
                return verdicts
            heads = tuple(next(iter(self._queues[p].values())) for p in deadlock.cycles[0])
            for key in dict.fromkeys(call.key for call in heads):
                verdicts += self._refuse(self._calls[key], DEADLOCK, None, (), heads, (), None, 0.0)

    def _waiting_heads(self) -> dict[int, Clauses]:
        """By process at the head of whose queue a call waits: for all members whose queues have another at theirs."""
        heads = {p: next(iter(queue)) for p, queue in self._queues.items() if queue}
        waits: dict[int, Clauses] = {}
        clauses: dict[Key, Clauses] = {}
        for process, key in heads.items():
            if self._look_at(self._calls[key]).is_open:
                if key not in clauses:
                    clauses[key] = all_of(p for p in key[0] if heads.get(p) != key)
                if clauses[key]:
                    waits[process] = clauses[key]
        return waits

    def _turns(self, one: Called, other: Called) -> Iterator[Turn]:
        """Where one of the two calls what the other calls here: next, or in an earlier call that was refused."""
        for each, its_other in ((one, other), (other, one)):
            calls = [call for call in self._kept[each.process] if call.members == each.members]
            later = next((c for c in calls if c.ordinal > each.ordinal and c.program == its_other.program), None)
            if later is not None:
                yield Turn(later, True)
            theirs = {c.ordinal: c for c in self._kept[its_other.process] if c.members == each.members}
            for call in reversed(calls):
                against = theirs.get(call.ordinal)
                if call.ordinal < each.ordinal and call.program == its_other.program:
                    if against is not None and against.program != call.program:
                        yield Turn(call, False)
                    break

    def _note_apart(self, found: _Call, call: Called) -> None:
        """Remember the first call from different lines; no longer, once it was told and they agree again."""
        members, first = call.members, next(iter(found.made.values()))
        if not call.site.line or not first.site.line or first is call:
            return
        if not _is_same_line(first, call):
            self.apart.setdefault(members, (first, call) if first.process < call.process else (call, first))
            return
        if members in self._told_apart and not found.missing:
            lines = {(each.site.file, each.site.line) for each in found.made.values()}
            if len(lines) == 1:
                self._told_apart.discard(members)
                self.apart.pop(members, None)

    def _compared(self, found: _Call, call: Called) -> list[Start | Verdict]:
        """The verdict where a process makes another call than the others, or one that needs a process which has
        ended."""
        other = next(iter(found.made.values()))  # all until now are of one program
        if other.program != call.program:
            pair = (other, call) if other.process < call.process else (call, other)
            return self._refused(found, MISMATCH, pair=pair, turns=tuple(self._turns(*pair)))
        self._note_apart(found, call)
        if self._endings and (gone := [p for p in found.members if p in self._endings]):
            return self._refused(found, LOST, missing=tuple(gone))
        return []

    # --- queues

    def _enter(self, call: Called) -> _Call | None:
        """Put a process's call behind its others; None where it was refused before."""
        found = self._calls.setdefault(call.key, _Call(call.key))
        found.made[call.process] = call
        found.is_native = found.is_native or call.is_native
        self._keep(call)
        if found.is_refused:
            self._forget(found)
            return None
        self._count_head(call.process, -1)
        queue = self._queues[call.process]
        is_last = not queue or next(reversed(queue.values())).turn < call.turn
        queue[call.key] = call
        if not is_last:  # a later one was seen before
            self._queues[call.process] = dict(sorted(queue.items(), key=lambda each: each[1].turn))
        self._count_head(call.process, 1)
        return found

    def _has_run(self, call: Called) -> None:
        """A native call that is over in its process when it is seen."""
        self._keep(call)
        found = self._calls.get(call.key)
        if found is None:
            return
        found.made[call.process] = call
        if found.is_refused:
            self._forget(found)
        else:
            self._note_apart(found, call)
            found.left.add(call.process)

    def _keep(self, call: Called) -> None:
        kept = self._kept[call.process]
        kept.append(call)
        if len(kept) > 1 and kept[-2].turn > call.turn:
            self._kept[call.process] = deque(sorted(kept, key=lambda each: each.turn), MOST_KEPT)

    def _come_to(self, process: int, key: Key | None) -> None:
        found = None if key is None else self._calls.get(key)
        if found is not None and found.is_open and process in found.made:
            found.ready.add(process)
            found.is_started = len(found.members) == 1

    def _look_at(self, found: _Call) -> _Call:
        """Whether a native call has started is known when it is looked at. What a process's log has shown before stays
        so until then, as far as that has not."""
        if found.is_native and found.is_open and len(found.members) > 1:
            found.is_started = self.is_complete(found.key)
        return found

    def _leave_until(self, process: int, log: Seen) -> bool:
        """Take native calls out of a process's queue that are over in it; whether there were some."""
        queue = self._queues[process]
        end = log.turn + 1 if log.is_done else log.turn
        calls = [self._calls[key] for key, call in queue.items() if call.turn < end]
        # one of the process alone is over without a word where it can't run
        over = [found for found in calls if found.is_native and (found.is_started or len(found.members) == 1)]
        for found in over:
            self._leave_queue(process, found.key)
            found.left.add(process)
            if found.left >= found.made.keys():
                del self._calls[found.key]
        return bool(over)

    def _require_next(self, call: Called) -> None:
        members, process = call.members, call.process
        if (process, members) not in self._next and not (process in members and self._queues.keys() >= set(members)):
            raise ClusterError(f"process {process} is none of {processes_named(members)}")
        wanted = self._next.get((process, members), 0)
        is_past = call.turn < self._turns_seen[process]
        if call.ordinal != wanted and not is_past and not (process in self._missed and call.ordinal > wanted):
            raise ClusterError(
                f"process {process} makes call {call.number} of {processes_named(members)}, expected call {wanted + 1}"
            )
        self._next[process, members] = max(wanted, call.ordinal + 1)

    def _head(self, process: int) -> _Call | None:
        key = next(iter(self._queues[process]), None)
        return None if key is None else self._calls[key]

    def _late_for(self, process: int, found: _Call) -> list[int]:
        """For whom a process waits in the call at the head of its queue."""
        if not found.is_open:
            return []
        missing = found.missing
        if process not in found.ready and not missing:
            return []  # the others wait for it
        others = [p for p in found.members if p != process and p not in found.ready]
        return [p for p in others if p in missing or not missing or self._head(p) is not found]

    def _at_head(self, process: int) -> tuple[Called | None, str]:
        """The call at the head of a process's queue, and what the process does in it."""
        found = self._head(process)
        if found is None:
            return None, WAITS
        if found.is_open:
            return found.made[process], WAITS if self._waits_for_others(process) else PREPARES
        return found.made[process], RUNS

    def _waits_for_others(self, process: int) -> bool:
        found = self._head(process)
        return found is not None and bool(self._late_for(process, found))

    def _leave_queues(self, found: _Call) -> None:
        for process in found.made:
            self._leave_queue(process, found.key)

    def _leave_queue(self, process: int, key: Key) -> None:
        queue = self._queues[process]
        if next(iter(queue), None) == key:
            self._count_head(process, -1)
            del queue[key]
            self._count_head(process, 1)
        else:
            queue.pop(key, None)

    def _count_head(self, process: int, change: int) -> None:
        members, _ = next(iter(self._queues[process]), ((), 0))
        if len(members) > 1:
            self._heads[members] += change
            if not self._heads[members]:
                del self._heads[members]

    def _forget(self, found: _Call) -> None:
        """A refused call is kept until all who live have made it."""
        if all(p in found.made or p in self._endings for p in found.members):
            self._calls.pop(found.key, None)


def _is_same_line(one: Called, other: Called) -> bool:
    """Logs keep the end of a long path."""
    return one.site.line == other.site.line and one.site.file[-_SURE:] == other.site.file[-_SURE:]


__all__ = ["MOST_KEPT", "NOTICE_S", "Called", "Ending", "Finding", "Key", "Ledger", "Notice", "Start", "Verdict"]
