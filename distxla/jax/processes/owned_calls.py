"""Calls of several JAX processes: what the ledger decides is done here.

Calls that the owner issues are told by frames. Those that processes issue themselves it sees in their logs, whenever
something is told or looked at, and has nothing to do with them while they go well.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.errors import ClusterError, DistxlaError, ReplicaLostError, raised
from distxla.jax.processes.daemon_threads import DaemonThreads
from distxla.jax.processes.device_names import with_processes
from distxla.jax.processes.facts import CompiledFacts
from distxla.jax.processes.findings import error_of
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger import Ledger
from distxla.jax.processes.ledger_facts import (
    LOST,
    SKIPPED,
    Called,
    Decision,
    Ending,
    Finding,
    Key,
    Notice,
    Start,
    Verdict,
    function_of,
    place_of,
)
from distxla.jax.processes.messages import (
    ABORTED,
    CALLBACK,
    DISAGREES,
    INTERRUPTED,
    SLOW,
    Done,
    Launch,
    Over,
    Ready,
    Refused,
    Served,
    Trouble,
    pack_json,
)
from distxla.jax.processes.messages import SKIPPED as CAN_NOT
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.jax.processes.owned_programs import OwnedPrograms
from distxla.jax.processes.said import guarded
from distxla.jax.processes.taken_calls import TakenCalls
from distxla.jax.processes.told_errors import pack_error
from distxla.jax.processes.world import World
from distxla.lazy_dataclass import replace
from distxla.machine.shortages import started_thread
from distxla.runtime.arrays.executable import Executable
from distxla.wire.checksums import Buffer
from distxla.wire.frame import Frame

_ENDS_CALLS: Final = (CALLBACK, INTERRUPTED)  # kinds of Trouble that end a call that runs
_ASKS: Final = (SLOW, ABORTED, DISAGREES)  # those that ask what becomes of a native call
_SOON_S: Final = 0.1  # until a mismatch is told at the earliest, for the next call to come
_LATEST_S: Final = 0.8  # the same at the latest
_LOOK_S: Final = 0.01
_REST_LOOKS: Final = 6  # after which a thread is at rest that sleeps and has had no processor time since the first

Tell = Callable[[int, Frame, list[Buffer]], None]
"""Tells a process something; nothing happens where it has ended."""


class _Call:
    """A call that the owner issues, of which some process has told. rows: by process that is ready.  stop: why it
    should end.  unserved: once its devices are done, the processes in which functions that these have called may still
    run."""

    __slots__ = ("executable", "facts", "is_started", "name", "rows", "sites", "stop", "unserved")

    def __init__(self, executable: Executable, facts: CompiledFacts, name: str) -> None:
        self.executable, self.facts, self.name = executable, facts, name
        self.rows: dict[int, bytes] = {}
        self.sites: dict[int, LaunchSite] = {}
        self.is_started = False
        self.stop: DistxlaError | None = None
        self.unserved: set[int] = set()

    @property
    def has_host_calls(self) -> bool:
        """Whether its devices call functions of their processes."""
        streams = (spec.stream for spec in self.executable.program.communicators)
        return any(key is not None and key.is_host_call for key in streams)


class OwnedCalls:
    """Each call that runs has a thread of its own; those of different processes run at the same time.

    tell: tells a process.  judged: gets the error of each call that will never run, or has failed.  thread_of: the main
    thread of a process, as main_thread_at has it.  The ledger's lock is held for nothing that blocks: another thread
    finds out what differs.
    """

    def __init__(
        self,
        cluster: OwnedCluster,
        programs: OwnedPrograms,
        world: World,
        stall_limit: float | None,
        tell: Tell,
        judged: Callable[[DistxlaError], None] = lambda error: None,
        thread_of: Callable[[int], tuple[str, int] | None] = lambda process: None,
    ) -> None:
        self._cluster, self._programs, self._world, self._logs = cluster, programs, world, programs.logs
        self._tell, self._judged, self._thread_of = tell, judged, thread_of
        self._lock = threading.Lock()  # of the ledger, the logs and all below
        self.ledger = Ledger(world.processes, stall_limit, self._logs.refuse, self._logs.is_complete)
        self._calls: dict[Key, _Call] = {}
        self._refused: dict[Key, set[int]] = {}  # calls that will never run: the members that have not made them yet
        self._running: dict[Key, _Call] = {}
        self._pause = threading.Event()  # set by close
        self._endings: dict[int, Ending] = {}
        self._to_refuse: queue.SimpleQueue[Verdict | None] = queue.SimpleQueue()
        self._to_compare: queue.SimpleQueue[Verdict | None] = queue.SimpleQueue()  # mismatches, which take longer
        # of a process one call is issued at most, while devices of an earlier one, taken over, may still compute
        self._threads = DaemonThreads("distxla-issue", 2 * world.processes)
        self._taken = TakenCalls(cluster, programs, self._threads, self._taken_over)
        cluster.stop_reason = self._stop_reason
        for verdicts in (self._to_refuse, self._to_compare):
            thread = threading.Thread(target=self._refuse_all, args=(verdicts,), name="distxla-refuse", daemon=True)
            started_thread(thread, "no calls could be issued")

    def close(self) -> None:
        """Issue nothing more; does not wait for a call that runs."""
        self._pause.set()
        self._threads.close()
        self._to_refuse.put(None)
        self._to_compare.put(None)

    # --- what processes tell

    def launch(self, process: int, frame: Launch, site: LaunchSite) -> None:
        """A process has submitted a call. ClusterError where that can't be."""
        members = self._members(process, frame.set)
        executable, facts = self._programs.executable(frame.program), self._programs.facts(frame.program)
        if facts.set != frame.set:
            raise ClusterError(f"program {frame.program} is not of the processes {list(members)}")
        name = site.program or self._programs.text(frame.program).name
        place = process, members, frame.ordinal, frame.turn
        called = Called(*place, frame.program, name, site, is_native=facts.native)
        key = members, frame.ordinal

        def decide() -> list[Start | Verdict]:
            if key in self._refused:
                self._makes_refused(process, key)
            elif not facts.native:
                self._calls.setdefault(key, _Call(executable, facts, name)).sites[process] = site
            return self.ledger.called(called)

        self._decide(decide)

    def ready(self, process: int, frame: Ready, rows: bytes) -> None:
        """The call is the first in the process's queue. rows: offsets of arguments and results, by device."""
        key = self._members(process, frame.set), frame.ordinal

        def decide() -> list[Start | Verdict]:
            call = self._calls.get(key)
            if call is None:  # refused a moment ago
                return []
            call.rows[process] = rows
            return self.ledger.ready(process, key)

        self._decide(decide)

    def trouble(self, process: int, frame: Trouble, error: DistxlaError, *, by_argument: bool = False) -> None:
        """A call does not go on as it should in a process. by_argument: see Trouble."""
        key = self._members(process, frame.set), frame.ordinal
        stopped: list[Key] = []

        def decide() -> list[Start | Verdict]:
            call = self._calls.get(key)
            if call is not None and call.is_started:
                if frame.kind in _ENDS_CALLS and call.stop is None:
                    stopped.append(key)
                    call.stop = self._reason(process, frame.kind, key, error)
                return []
            if frame.kind in _ASKS:
                return self._asked(process, key)
            if frame.kind == CAN_NOT:
                return self.ledger.skipped(process, key, error, by_argument=by_argument)
            reason = self._reason(process, frame.kind, key, error)
            self._taken.interrupt(process, reason)
            found = [] if self._take(process, key, reason) else self.ledger.skipped(process, key, error)
            if not found:  # where the last process has reached it a moment ago
                self._take(process, key, reason)
            return found

        if frame.kind not in (*_ENDS_CALLS, *_ASKS, CAN_NOT):
            raise ClusterError(f"trouble of kind {frame.kind}, which calls don't have")
        self._decide(decide)
        self._end_served(stopped)

    def _asked(self, process: int, key: Key) -> list[Start | Verdict]:
        """A native call lasts in a process, or does not go on. With the lock, and what logs show is known."""
        if self._take(process, key) or (why := self._cluster.unusable()) is None:
            return []
        return self.ledger.skipped(process, key, why)

    def _take(self, process: int, key: Key, stop: DistxlaError | None = None) -> bool:
        """Take over a native call, whose part in this process is not over, if it has started; whether it has. With the
        lock."""
        call = self.ledger.made(process, key)
        if key in self._refused:  # its slot may have a later call already, and looks complete
            return False
        if call is None or not call.is_native or self._logs.part(process, self._number(key), key[1]) is None:
            return False
        if len(key[0]) > 1 and not self._logs.is_complete(key):
            return False
        self._taken.take(call, stop)
        return True

    def _number(self, key: Key) -> int:
        return self._programs.set_of(key[0])

    def served(self, process: int, frame: Served) -> None:
        """All functions that the process's devices have called in a call have returned."""
        key = self._members(process, frame.set), frame.ordinal
        with self._lock:
            call = self._calls.get(key)
            if call is None or process not in call.unserved:  # it has failed meanwhile
                return
            call.unserved.discard(process)
            is_over = not call.unserved
        if is_over:
            self._over(key, call, None)

    def _reason(self, process: int, kind: int, key: Key, error: DistxlaError) -> DistxlaError:
        """Why a call ends in which a process is in trouble. With the lock."""
        if kind == CALLBACK:
            return error
        call = self.ledger.made(process, key)
        name = "a call" if call is None else call.name
        where = f" ({call.site})" if call is not None and call.site.line else ""
        return ClusterError(f"process {process} was interrupted in {name}{where}")

    def ended(self, process: int, how: Ending) -> None:
        """A process has ended, or says that it does."""
        stopped: list[Key] = []

        def decide() -> list[Start | Verdict]:
            self._endings[process] = how
            for key, call in self._calls.items():
                if process in key[0] and call.is_started and call.has_host_calls and call.stop is None:
                    stopped.append(key)
                    call.stop = _gone(process, how, key, call)
            for key in list(self._refused):
                self._makes_refused(process, key)  # which it never will
            number = self._logs.newest_set(process)
            if number is not None and len(self._programs.members_of(number)) == 1:
                self._cluster.withdraw(process)  # what it has not started: else its program could never be unloaded
            return self.ledger.ended(process, how)

        self._decide(decide)
        self._end_served(stopped)

    def look(self, now: float) -> list[Notice]:
        """To be called from time to time: late processes. now: seconds of a clock that never goes back."""
        return self._decide(lambda: self.ledger.look(now))

    def _members(self, process: int, number: int) -> tuple[int, ...]:
        members = self._programs.members_of(number)
        if process not in members:
            raise ClusterError(f"process {process} is none of the processes {list(members)}")
        return members

    # --- what is done

    def _decide(self, decide: Callable[[], Iterable[Decision]]) -> list[Notice]:
        """Ask the ledger, which is shown the logs first, and do what it says, but for the notices, which are
        returned."""
        with self._lock:
            decisions: list[Decision] = [*self._pulled()]
            self._note(decisions)
            decided = list(decide())
            self._note(decided)
        decisions += decided
        for one in decisions:
            if isinstance(one, Start):
                self._threads.do(partial(self._issue, one.key))
        return [one for one in decisions if isinstance(one, Notice)]

    def _pulled(self) -> list[Start | Verdict]:
        """What the ledger says of that which logs and boards show now. With the lock."""
        if not self._logs.is_open:
            return []
        for sides in self._logs.take_apart():
            self.ledger.seen_apart(*sides)
        seen = self._logs.seen(self._programs.members_of, self._name)
        for key in list(self._refused):
            for process, log in seen.items():
                if any(call.key == key for call in log.calls):
                    self._makes_refused(process, key)
        return self.ledger.seen(seen)

    def _name(self, process: int, program: int) -> str:
        """What a process calls a program in messages."""
        try:
            return self._programs.name_of(process, program) or self._programs.text(program).name
        except KeyError:  # dropped long ago
            return "a program"

    def _makes_refused(self, process: int, key: Key) -> None:
        """A process has made a call that was refused before. With the lock."""
        late = self._refused.get(key)
        if late is not None:
            late.discard(process)
            if not late:
                del self._refused[key]

    def _note(self, decisions: Iterable[Decision]) -> None:
        """With the lock: which calls have started, and which will never run."""
        for one in decisions:
            if isinstance(one, Start):
                self._calls[one.key].is_started = True
            elif isinstance(one, Verdict):
                self._calls.pop(one.key, None)
                made = {call.process for call in one.finding.calls}
                if late := set(one.key[0]) - made - self._endings.keys():
                    self._refused[one.key] = late
                (self._to_refuse if one.finding.pair is None else self._to_compare).put(one)

    def _refuse_all(self, verdicts: queue.SimpleQueue[Verdict | None]) -> None:
        while (verdict := verdicts.get()) is not None:
            guarded(partial(self._refuse, *verdict))

    def _refuse(self, key: Key, finding: Finding) -> None:
        members, ordinal = key
        try:
            error: DistxlaError = error_of(self._with_turns(finding), self._programs.text)
            is_unusable = finding.kind == SKIPPED and self._cluster.unusable() is not None
            payload = pack_json({**pack_error(error, members), "unusable": is_unusable})
        except Exception as failure:
            which = f"call {ordinal + 1} of the processes {list(members)}"
            error = ClusterError(f"{which} can't run, and why can't be told: {raised(failure)}")
            payload = pack_json(pack_error(error, members))
        number = self._programs.set_of(members)
        for member in members:
            self._tell(member, Refused(number, ordinal), [payload])
            if member in finding.endings and self._logs.part(member, number, ordinal) is not None:
                self._cluster.withdraw(member)  # else its program could never be unloaded
        if len(members) > 1 or finding.kind not in (SKIPPED, LOST):  # else it is the process's own affair
            self._judged(error)

    def _with_turns(self, finding: Finding) -> Finding:
        """Of a mismatch, also whether one process calls next what the other calls here: that is seen a moment later,
        since JAX's calls don't block, unless its main thread is at rest."""
        begin, looks = clock.now(), deque[Any](maxlen=_REST_LOOKS)
        while finding.pair is not None and not finding.turns:
            self._decide(list)
            with self._lock:
                turns = self.ledger.turns_of(*finding.pair)
                waits_for = self.ledger.yet_to_call(*finding.pair)
            waited = clock.now() - begin
            looks.append(found := {process: self._thread_of(process) for process in waits_for})
            is_at_rest = looks[0] == found and all(one is None or one[0] == "S" for one in found.values())
            is_at_rest = is_at_rest and len(looks) == _REST_LOOKS and waited >= _SOON_S
            if turns is not None or is_at_rest or waited >= _LATEST_S:
                return replace(finding, turns=turns or ())
            self._pause.wait(_LOOK_S)
        return finding

    def _issue(self, key: Key) -> None:
        with self._lock:
            call = self._running[key] = self._calls[key]
        error: BaseException | None = None
        try:
            if call.stop is not None:
                raise call.stop
            rows = self._rows(call)
            self._cluster.issue_on(key[0], [call.executable], lambda found: _place(found[0], rows))
        except BaseException as failure:
            error = failure
        with self._lock:
            del self._running[key]
        if error is None and call.has_host_calls:
            self._serve(key, call)
        else:
            self._over(key, call, error)

    def _serve(self, key: Key, call: _Call) -> None:
        """The devices are done; functions that they have called may still run, and fail."""
        members, ordinal = key
        with self._lock:
            gone = next((member for member in members if member in self._endings), None)
            if gone is not None and call.stop is None:
                call.stop = _gone(gone, self._endings[gone], key, call)
            call.unserved = set(members)
        if call.stop is not None:
            self._end_served([key])
            return
        for member in members:
            self._tell(member, Done(call.facts.set, ordinal), [])

    def _end_served(self, keys: list[Key]) -> None:
        """End calls that are to stop, if their devices are done."""
        for key in keys:
            with self._lock:
                call = self._calls.get(key)
                is_done = call is not None and bool(call.unserved)
                if call is not None:
                    call.unserved = set()
            if call is not None and is_done:
                self._over(key, call, call.stop)

    def _over(self, key: Key, call: _Call, error: BaseException | None) -> None:
        """Tell its processes how a call has ended."""

        def decide() -> list[Start | Verdict]:
            del self._calls[key]
            return self.ledger.over(key)

        payload = self._payload(key, error)
        self._decide(decide)
        self._tell_over(key, key[0], payload, error)

    def _taken_over(self, key: Key, members: tuple[int, ...], error: BaseException | None) -> None:
        """Of a native call; members: those that have waited for it."""
        payload = self._payload(key, error)
        self._decide(lambda: self.ledger.over(key))
        self._tell_over(key, members, payload, error)

    def _payload(self, key: Key, error: BaseException | None) -> list[Buffer]:
        """Of Over."""
        if error is None:
            return []
        members, ordinal = key
        is_unusable = self._cluster.unusable() is not None
        try:
            if isinstance(error, DistxlaError):
                error.message = with_processes(error.message, self._world)
            return [pack_json({**pack_error(error, members), "unusable": is_unusable})]
        except Exception as failure:
            error = ClusterError(f"call {ordinal + 1} has failed, and why can't be told: {raised(failure)}")
            return [pack_json({**pack_error(error, members), "unusable": is_unusable})]

    def _tell_over(
        self, key: Key, members: tuple[int, ...], payload: list[Buffer], error: BaseException | None
    ) -> None:
        for member in members:
            self._tell(member, Over(self._number(key), key[1]), payload)
        if isinstance(error, DistxlaError) and not self._pause.is_set():
            self._judged(error)

    def _stop_reason(self, members: Sequence[int]) -> DistxlaError | None:
        call = next((call for key, call in list(self._running.items()) if key[0] == tuple(members)), None)
        return self._taken.stop_reason(members) if call is None or call.stop is None else call.stop

    def _rows(self, call: _Call) -> NDArray[np.uint64]:
        """The rows of all processes, in the order of the program's devices. ClusterError where one has another size."""
        executable, world = call.executable, self._world
        count = len(executable.parameters) + len(executable.results)
        rows = np.zeros((len(executable.devices), count), np.uint64)
        of_process: dict[int, list[int]] = {}
        for row, device in enumerate(executable.devices):
            of_process.setdefault(world.process_of(device), []).append(row)
        for process, places in of_process.items():
            data = call.rows[process]
            if len(data) != 8 * count * len(places):
                raise ClusterError(
                    f"process {process} is ready with {len(data)} bytes of offsets for {call.name}; expected "
                    f"{8 * count * len(places)}"
                )
            rows[places] = np.frombuffer(data, np.uint64).reshape(len(places), count)
        return rows


def _gone(process: int, how: Ending, key: Key, call: _Call) -> DistxlaError:
    name, place = function_of(call.name), place_of(call.sites.get(process, LaunchSite()))
    return ReplicaLostError(
        f"process {process} {how} during its call {key[1] + 1} ({name}, {place}), whose devices call its functions"
    )


def _place(executable: Executable, rows: NDArray[np.uint64]) -> list[Any]:
    if rows.size:
        executable.call_area[:, :] = rows
    return []


__all__ = ["OwnedCalls"]
