"""Devices of the lock step that can never go on: the graph and the error, as of devices that run in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from distxla.diagnosis.diagnose import deadlock_error, diagnose
from distxla.diagnosis.facts.blocked import DeviceState
from distxla.diagnosis.graph import Deadlock, all_of, any_of, find_deadlock, smallest_first
from distxla.errors import DeadlockError
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.oracle.waits import Outcome, Wait, differing


@dataclass(frozen=True)
class Stuck:
    """deadlock: among devices.  waits: by device, one that can't become ready."""

    deadlock: Deadlock
    waits: Mapping[int, Wait]

    @staticmethod
    def of(fibers: Sequence[tuple[int, Wait | None, Outcome]]) -> Stuck | None:
        """The devices that can never go on; None where something from outside may still help all of them.

        fibers: all that have not ended, each with its device, its wait, and the outcome that it will have.
        """
        first = 1 + max(device for device, _, _ in fibers)
        alive: dict[int, list[int]] = {}
        nodes = {}
        for place, (device, _, outcome) in enumerate(fibers):
            alive.setdefault(device, []).append(first + place)
            nodes[id(outcome)] = first + place
        waits, ended = {}, set()
        for place, (_, wait, _) in enumerate(fibers):
            if wait is None or wait.from_outside or wait.ready():
                continue
            clauses = [*chain.from_iterable(any_of(alive.get(other, (-1 - other,))) for other in wait.others)]
            if wait.beside is not None and id(wait.beside) in nodes:
                clauses += all_of((nodes[id(wait.beside)],))
            if clauses:
                waits[first + place] = tuple(clauses)
                ended |= {node for clause in clauses for node in clause if node < 0}
        found = find_deadlock(waits, ended)
        if found is None:
            return None
        device_of = {first + place: device for place, (device, _, _) in enumerate(fibers)}
        device_of |= {node: -1 - node for node in ended}
        held = {device_of[node]: fibers[node - first][1] for node in reversed(found.stuck)}
        return Stuck(_of_devices(found, device_of), {device: wait for device, wait in held.items() if wait is not None})

    def error(self, devices: Mapping[int, DeviceState], modules: Mapping[int, Module]) -> DeadlockError:
        """With its diagnosis. devices: the state of each.  modules: the program of each."""
        error = deadlock_error(self.deadlock, devices, lambda one, other: differing(self.waits[one], self.waits[other]))
        error.diagnosis = diagnose(error, devices, self.deadlock, modules)
        return error


def _of_devices(found: Deadlock, device_of: Mapping[int, int]) -> Deadlock:
    """The deadlock of fibers as one of their devices."""
    cycles = tuple(dict.fromkeys(smallest_first(device_of[node] for node in cycle) for cycle in found.cycles))
    without_end = tuple(sorted({(device_of[one], device_of[other]) for one, other in found.without_end}))
    stuck = {device_of[node] for node in found.stuck}
    named = {device for cycle in cycles for device in cycle} | {device for device, _ in without_end}
    return Deadlock(tuple(sorted(stuck)), cycles, without_end, tuple(sorted(stuck - named)))
