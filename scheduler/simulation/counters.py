"""The progress of the rounds and the transfers of a run."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from distxla.scheduler.simulation.communication import CommunicationSite, Edge, Rendezvous
from distxla.scheduler.simulation.traces import Ticket


class Rounds:
    """The rounds of a rendezvous. come: by device, how many it has begun.  complete: rounds that all have reached."""

    __slots__ = ("arrived", "come", "complete", "first", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.come: dict[int, int] = {}
        self.arrived: dict[int, int] = {}
        self.first: dict[int, tuple[int, CommunicationSite]] = {}
        self.complete = 0

    def clone(self) -> Rounds:
        copy = Rounds(self.size)
        copy.come, copy.arrived, copy.first = dict(self.come), dict(self.arrived), dict(self.first)
        copy.complete = self.complete
        return copy


class Flow:
    """The transfers of an edge. taken: numbers of values that have been received, of the last ones.  asleep: the
    devices that wait, by the event that they wait for."""

    __slots__ = ("asleep", "recvs", "sends", "sent", "taken")

    def __init__(self) -> None:
        self.sends = self.recvs = 0
        self.taken: set[int] = set()
        self.sent: dict[int, CommunicationSite] = {}
        self.asleep: dict[Hashable, int] = {}

    def clone(self) -> Flow:
        copy = Flow()
        copy.sends, copy.recvs, copy.taken, copy.sent = self.sends, self.recvs, set(self.taken), dict(self.sent)
        return copy


class Counters:
    """All counters of a run; those of a part of it begin as copies of the whole's and may be given up."""

    def __init__(self, whole: Counters | None = None) -> None:
        self.whole = whole
        self.rounds: dict[int, Rounds] = {}
        self.flows: dict[Edge, Flow] = {}
        self.tickets: dict[tuple[int, int], tuple[Any, int]] = {}  # (device, ticket) -> (rendezvous or edge, number)
        self.executions: dict[tuple[int, int], int] = {}
        self.rendezvous_by_id: dict[int, Rendezvous] = {}

    def of(self, rendezvous: Rendezvous) -> Rounds:
        found = self.rounds.get(id(rendezvous))
        if found is None:
            found = Rounds(len(rendezvous.members)) if self.whole is None else self.whole.of(rendezvous).clone()
            self.rounds[id(rendezvous)] = found
            self.rendezvous_by_id[id(rendezvous)] = rendezvous
        return found

    def flow(self, edge: Edge) -> Flow:
        found = self.flows.get(edge)
        if found is None:
            found = Flow() if self.whole is None else self.whole.flow(edge).clone()
            self.flows[edge] = found
        return found

    def begun(self, device: int, ticket: Ticket) -> tuple[Any, int] | None:
        found = self.tickets.get((device, id(ticket)))
        return found if found is not None or self.whole is None else self.whole.begun(device, ticket)

    def commit(self) -> None:
        """Write the counters of a part into the whole."""
        assert self.whole is not None
        self.whole.rounds.update(self.rounds)
        self.whole.flows.update(self.flows)
        self.whole.tickets.update(self.tickets)
        self.whole.rendezvous_by_id.update(self.rendezvous_by_id)
