"""Calls of several JAX processes, by frames: what the ledger decides is done here."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.errors import ClusterError, DistxlaError, ReplicaLostError, raised
from distxla.jax.processes.device_names import with_processes
from distxla.jax.processes.facts import CompiledFacts
from distxla.jax.processes.findings import error_of
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger import Ledger
from distxla.jax.processes.ledger_facts import (
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
    CALLBACK,
    INTERRUPTED,
    SKIPPED,
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
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.jax.processes.owned_programs import OwnedPrograms
from distxla.jax.processes.said import guarded
from distxla.jax.processes.told_errors import pack_error
from distxla.jax.processes.world import World
from distxla.lazy_dataclass import replace
from distxla.machine.shortages import started_thread
from distxla.runtime.arrays.executable import Executable
from distxla.wire.checksums import Buffer
from distxla.wire.frame import Frame

_ENDS_CALLS: Final = (CALLBACK, INTERRUPTED)  # kinds of Trouble that end a call that runs
_SOON_S: Final = 0.1  # until a mismatch is told, for the next call to come
_LOOK_S: Final = 0.01

Tell = Callable[[int, Frame, list[Buffer]], None]
"""Tells a process something; nothing happens where it has ended."""


class _Call:
    """A call of which some process has told. rows: by process that is ready.  stop: why it should end.  unserved: once
    its devices are done, the processes in which functions that these have called may still run."""

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
    """One call runs at a time, in a thread of its own.

    tell: tells a process.  judged: gets the error of each call that will never run, or has failed.  The ledger's lock
    is held for nothing that blocks: another thread finds out what differs.
    """

    def __init__(
        self,
        cluster: OwnedCluster,
        programs: OwnedPrograms,
        world: World,
        ledger: Ledger,
        tell: Tell,
        judged: Callable[[DistxlaError], None] = lambda error: None,
    ) -> None:
        self._cluster, self._programs, self._world, self._ledger = cluster, programs, world, ledger
        self._tell, self._judged = tell, judged
        self._lock = threading.Lock()  # of the ledger and of all below
        self._calls: dict[Key, _Call] = {}
        self._refused: dict[Key, set[int]] = {}  # calls that will never run: the members that have not made them yet
        self._running: _Call | None = None
        self._pause = threading.Event()  # set by close
        self._endings: dict[int, Ending] = {}
        self._to_issue: queue.SimpleQueue[Key | None] = queue.SimpleQueue()
        self._to_refuse: queue.SimpleQueue[Verdict | None] = queue.SimpleQueue()
        cluster.stop_reason = self._stop_reason
        for name, target in (("distxla-issue", self._issue_all), ("distxla-refuse", self._refuse_all)):
            started_thread(threading.Thread(target=target, name=name, daemon=True), "no calls could be issued")

    def close(self) -> None:
        """Issue nothing more; does not wait for a call that runs."""
        self._pause.set()
        self._to_issue.put(None)
        self._to_refuse.put(None)

    # --- what processes tell

    def launch(self, process: int, frame: Launch, site: LaunchSite) -> None:
        """A process has submitted a call. ClusterError where that can't be."""
        members = self._members(process, frame.set)
        executable, facts = self._programs.executable(frame.program), self._programs.facts(frame.program)
        if facts.set != frame.set:
            raise ClusterError(f"program {frame.program} is not of the processes {list(members)}")
        name = site.program or self._programs.text(frame.program).name
        called = Called(process, members, frame.ordinal, frame.turn, frame.program, name, site)
        key = members, frame.ordinal

        def decide() -> list[Start | Verdict]:
            late = self._refused.get(key)
            if late is None:
                self._calls.setdefault(key, _Call(executable, facts, name)).sites[process] = site
            else:
                late.discard(process)
                if not late:
                    del self._refused[key]
            return self._ledger.called(called)

        self._decide(decide)

    def ready(self, process: int, frame: Ready, rows: bytes) -> None:
        """The call is the first in the process's queue. rows: offsets of arguments and results, by device."""
        key = self._members(process, frame.set), frame.ordinal

        def decide() -> list[Start | Verdict]:
            call = self._calls.get(key)
            if call is None:  # refused a moment ago
                return []
            call.rows[process] = rows
            return self._ledger.ready(process, key)

        self._decide(decide)

    def trouble(self, process: int, frame: Trouble, error: DistxlaError, *, by_argument: bool = False) -> None:
        """A call does not go on as it should in a process. by_argument: see Trouble."""
        if frame.kind == SLOW:
            return
        key = self._members(process, frame.set), frame.ordinal

        stopped: list[Key] = []

        def decide() -> list[Start | Verdict]:
            call = self._calls.get(key)
            if call is not None and call.is_started:
                if frame.kind in _ENDS_CALLS and call.stop is None:
                    stopped.append(key)
                    call.stop = self._reason(process, frame.kind, call, error)
                return []
            return self._ledger.skipped(process, key, error, by_argument=by_argument)

        if frame.kind not in (*_ENDS_CALLS, SKIPPED):
            raise ClusterError(f"trouble of kind {frame.kind}, which calls by frames don't have")
        self._decide(decide)
        self._end_served(stopped)

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

    @staticmethod
    def _reason(process: int, kind: int, call: _Call, error: DistxlaError) -> DistxlaError:
        if kind == CALLBACK:
            return error
        site = call.sites.get(process)
        where = f" ({site})" if site is not None and site.line else ""
        return ClusterError(f"process {process} was interrupted in {call.name}{where}")

    def ended(self, process: int, how: Ending) -> None:
        """A process has ended, or says that it does."""
        stopped: list[Key] = []

        def decide() -> list[Start | Verdict]:
            self._endings[process] = how
            for key, call in self._calls.items():
                if process in key[0] and call.is_started and call.has_host_calls and call.stop is None:
                    stopped.append(key)
                    call.stop = _gone(process, how, key, call)
            return self._ledger.ended(process, how)

        self._decide(decide)
        self._end_served(stopped)

    def look(self, now: float) -> list[Notice]:
        """To be called from time to time: late processes. now: seconds of a clock that never goes back."""
        return self._decide(lambda: self._ledger.look(now))

    def _members(self, process: int, number: int) -> tuple[int, ...]:
        members = self._programs.members_of(number)
        if process not in members:
            raise ClusterError(f"process {process} is none of the processes {list(members)}")
        return members

    # --- what is done

    def _decide(self, decide: Callable[[], Iterable[Decision]]) -> list[Notice]:
        """Ask the ledger and do what it says, but for the notices, which are returned."""
        with self._lock:
            decisions = list(decide())
            self._note(decisions)
        for one in decisions:
            if isinstance(one, Start):
                self._to_issue.put(one.key)
        return [one for one in decisions if isinstance(one, Notice)]

    def _note(self, decisions: Iterable[Decision]) -> None:
        """With the lock: which calls have started, and which will never run."""
        for one in decisions:
            if isinstance(one, Start):
                self._calls[one.key].is_started = True
            elif isinstance(one, Verdict):
                call = self._calls.pop(one.key, None)
                if late := set(one.key[0]) - set(() if call is None else call.sites):
                    self._refused[one.key] = late
                self._to_refuse.put(one)

    def _refuse_all(self) -> None:
        while (verdict := self._to_refuse.get()) is not None:
            guarded(partial(self._refuse, *verdict))

    def _refuse(self, key: Key, finding: Finding) -> None:
        members, ordinal = key
        try:
            error: DistxlaError = error_of(self._with_turns(finding), self._programs.text)
            payload = pack_json(pack_error(error, members))
        except Exception as failure:
            which = f"call {ordinal + 1} of the processes {list(members)}"
            error = ClusterError(f"{which} can't run, and why can't be told: {raised(failure)}")
            payload = pack_json(pack_error(error, members))
        number = self._programs.set_of(members)
        for member in members:
            self._tell(member, Refused(number, ordinal), [payload])
        self._judged(error)

    def _with_turns(self, finding: Finding) -> Finding:
        """Of a mismatch, also whether one process calls next what the other calls here: that is seen a moment later,
        since JAX's calls don't block."""
        end = clock.now() + _SOON_S
        while finding.pair is not None and not finding.turns:
            with self._lock:
                turns = self._ledger.turns_of(*finding.pair)
            if turns is not None or clock.now() >= end:
                return replace(finding, turns=turns or ())
            self._pause.wait(_LOOK_S)
        return finding

    def _issue_all(self) -> None:
        while (key := self._to_issue.get()) is not None:
            guarded(partial(self._issue, key))

    def _issue(self, key: Key) -> None:
        with self._lock:
            call = self._running = self._calls[key]
        error: BaseException | None = None
        try:
            if call.stop is not None:
                raise call.stop
            rows = self._rows(call)
            self._cluster.issue_on(key[0], [call.executable], lambda found: _place(found[0], rows))
        except BaseException as failure:
            error = failure
        if error is None and call.has_host_calls:
            self._serve(key, call)
        else:
            self._over(key, call, error)

    def _serve(self, key: Key, call: _Call) -> None:
        """The devices are done; functions that they have called may still run, and fail."""
        members, ordinal = key
        with self._lock:
            self._running = None
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
        members, ordinal = key
        payload: list[Buffer] = []
        if error is not None:
            is_unusable = self._cluster.is_unusable()
            try:
                if isinstance(error, DistxlaError):
                    error.message = with_processes(error.message, self._world)
                payload.append(pack_json({**pack_error(error, members), "unusable": is_unusable}))
            except Exception as failure:
                error = ClusterError(f"call {ordinal + 1} has failed, and why can't be told: {raised(failure)}")
                payload.append(pack_json({**pack_error(error, members), "unusable": is_unusable}))

        def decide() -> list[Start | Verdict]:
            if self._running is call:
                self._running = None
            del self._calls[key]
            return self._ledger.over(key)

        self._decide(decide)
        for member in members:
            self._tell(member, Over(call.facts.set, ordinal), payload)
        if isinstance(error, DistxlaError):
            self._judged(error)

    def _stop_reason(self, members: Sequence[int]) -> DistxlaError | None:
        call = self._running
        return None if call is None else call.stop

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
