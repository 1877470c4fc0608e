"""The dispatchers of a cluster: one for each set of slices that is called together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from distxla.program.artifact import CompiledProgram
from distxla.runtime.calls.cluster_hosts import Hosts
from distxla.runtime.calls.dispatch import Dispatcher, Shared
from distxla.runtime.groups.communicators import Communicators
from distxla.runtime.streams.streams import ClusterStreams

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.runtime.replica.user_functions import RoutineFailure


class Dispatchers:
    """Calls on sets of slices that have none in common run at the same time; others wait for each other. programs,
    modules: of all programs that are loaded, by number.

    Each slice has a lock; a call takes those of all its slices, in the order of the slices. all: calls all devices.
    """

    def __init__(
        self,
        hosts: Hosts,
        communicators: Communicators,
        streams: ClusterStreams,
        routine_failure: Callable[[int], RoutineFailure | None],
    ) -> None:
        """hosts: they have started.  routine_failure: asks a device why a Python routine failed on it."""
        self._slices = hosts.local.slices
        self._locks = [threading.RLock() for _ in self._slices]
        self.programs: dict[int, CompiledProgram] = {}
        self.modules: dict[int, Module] = {}
        known = self.programs, self.modules
        self._shared = Shared(hosts, communicators, streams, routine_failure, *known, self._overlapping)
        self._made: dict[tuple[int, ...], Dispatcher] = {}
        self._making = threading.Lock()
        self.all = self.of(range(len(self._slices)))

    def of(self, slices: Sequence[int]) -> Dispatcher:
        """The dispatcher of these slices, by index; where the host's devices are not divided, that of all devices."""
        numbers = tuple(sorted(set(slices))) if len(self._slices) > 1 else (0,)
        with self._making:
            if numbers not in self._made:
                locks = [self._locks[number] for number in numbers]
                lock: AbstractContextManager[Any] = locks[0] if len(locks) == 1 else _Locks(locks)
                self._made[numbers] = Dispatcher([self._slices[number] for number in numbers], lock, self._shared)
            return self._made[numbers]

    def forget(self, number: int) -> None:
        """A program was unloaded."""
        self.programs.pop(number, None)
        self.modules.pop(number, None)
        for one in list(self._made.values()):
            one.forget()

    def _overlapping(self, one: Dispatcher) -> Sequence[Dispatcher]:
        mine = set(one.slices)
        return [other for other in list(self._made.values()) if not mine.isdisjoint(other.slices)]


class _Locks:
    """Several reentrant locks as one."""

    def __init__(self, locks: Sequence[AbstractContextManager[Any]]) -> None:
        self._locks = locks

    def __enter__(self) -> None:
        with ExitStack() as taken:
            for lock in self._locks:
                taken.enter_context(lock)
            taken.pop_all()

    def __exit__(self, *error: object) -> None:
        for lock in reversed(self._locks):
            lock.__exit__(*error)


__all__ = ["Dispatchers"]
