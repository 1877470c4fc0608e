"""Native calls that the owner has taken over, since they last, fail, or are to end: it waits for them with all that it
does for its own, and tells their processes how they have ended."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from distxla.errors import DistxlaError
from distxla.jax.processes.daemon_threads import DaemonThreads
from distxla.jax.processes.ledger_facts import Called, Key
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.jax.processes.owned_programs import OwnedPrograms

Parts = dict[int, tuple[int, int]]
"""By process that is not beyond a call: sequence and target of its part."""


class _Taken:
    """stop: why it should end.  held: the processes that issue nothing meanwhile."""

    def __init__(self, key: Key, program: int, stop: DistxlaError | None) -> None:
        self.key, self.program, self.stop = key, program, stop
        self.parts: Parts = {}
        self.held: set[int] = set()


class TakenCalls:
    """over: gets a call, the processes that took part to the end, and the error, if any."""

    def __init__(
        self,
        cluster: OwnedCluster,
        programs: OwnedPrograms,
        threads: DaemonThreads,
        over: Callable[[Key, tuple[int, ...], BaseException | None], None],
    ) -> None:
        self._cluster, self._programs = cluster, programs
        self._threads, self._over = threads, over
        self._lock = threading.Lock()  # of all below
        self._taken: dict[Key, _Taken] = {}
        self._holds: Counter[int] = Counter()  # by process: calls for which it is held

    def take(self, call: Called, stop: DistxlaError | None = None) -> None:
        """Wait for the call, in another thread; all its members have reached it. stop: why it should end, if it should.
        Nothing but that happens where it is taken already."""
        with self._lock:
            taken = self._taken.get(call.key)
            if taken is not None:
                taken.stop = taken.stop or stop
                return
            taken = self._taken[call.key] = _Taken(call.key, call.program, stop)
        try:
            self._threads.do(partial(self._wait_for, taken))
        except BaseException:
            with self._lock:
                del self._taken[call.key]
            raise

    def interrupt(self, process: int, why: DistxlaError) -> None:
        """A process is not to wait any more for devices of a call of its own that has failed: they are ended."""
        with self._lock:
            self._stop(process, why)

    def _stop(self, process: int, why: DistxlaError) -> None:
        for taken in self._taken.values():
            if process in taken.parts:  # of those that are held some are beyond the call already
                taken.stop = taken.stop or why

    def stop_reason(self, members: Sequence[int]) -> DistxlaError | None:
        """Why a call that is in flight in these processes should end."""
        with self._lock:
            wanted = set(members)
            return next((one.stop for one in self._taken.values() if one.stop and wanted == one.parts.keys()), None)

    def _wait_for(self, taken: _Taken) -> None:
        try:
            for process in taken.key[0]:
                self._hold(taken, process)
            self._find_parts(taken)
        except BaseException as error:
            self._over(taken.key, taken.key[0], error)
            raise
        else:
            if taken.parts:
                self._finish(taken)
        finally:
            with self._lock:
                del self._taken[taken.key]
            for process in list(taken.held):
                self._let_go(taken, process)

    def _find_parts(self, taken: _Taken) -> None:
        """The held processes issue nothing behind what their logs show. Those beyond the call may go on."""
        members, ordinal = taken.key
        number = self._programs.set_of(members)
        found = {process: self._programs.logs.part(process, number, ordinal) for process in members}
        with self._lock:
            taken.parts = {process: part for process, part in found.items() if part is not None}
        for process in members:
            if process not in taken.parts:
                self._let_go(taken, process)

    def _finish(self, taken: _Taken) -> None:
        key, members = taken.key, tuple(sorted(taken.parts))
        error: BaseException | None = None
        try:
            executable = self._programs.executable(taken.program)
            self._cluster.take_over(taken.parts, executable.devices, [executable])
        except BaseException as failure:
            error = failure
        self._over(key, members, error)
        if error is not None and self._cluster.unusable() is None:
            with suppress(DistxlaError):  # why those were ended by force that still computed
                self._cluster.settle(members)  # before anything is issued to them

    def _hold(self, taken: _Taken, process: int) -> None:
        with self._lock:
            self._holds[process] += 1
            taken.held.add(process)
            self._cluster.hold(process)

    def _let_go(self, taken: _Taken, process: int) -> None:
        with self._lock:
            taken.held.discard(process)
            self._holds[process] -= 1
            if not self._holds[process]:
                self._cluster.let_go(process)


__all__ = ["TakenCalls"]
