"""Advance all devices as far as the happens-before graph allows. An edge of that graph is a condition on counters that
only grow: a round is over when all members have entered it, a recv-done when the send has been executed, a send-done
when the recv has, and each device executes its instructions one after the other. So the order in which devices are
advanced does not matter: either all events happen, in a topological order of the graph, or the remaining ones hold a
cycle, or wait for events that never happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from copy import copy
from typing import Any

from distxla.collectives.channels import payload_of
from distxla.lazy_dataclass import dataclass, field
from distxla.scheduler.simulation.communication import MOST_SENDS, CommunicationSite, Edge, Rendezvous
from distxla.scheduler.simulation.counters import Counters, Flow, Rounds
from distxla.scheduler.simulation.traces import Act, Choice, Split, Ticket, Trace, TraceEvent
from distxla.time_limit import at

SYNCHRONOUS, BUFFERED = 0, 1
ROUND, START, DONE, SEND, RECV, SEND_DONE = Act.ROUND, Act.START, Act.DONE, Act.SEND, Act.RECV, Act.SEND_DONE


@dataclass(frozen=True)
class Stop:
    """Where a device can't go on.

    peers: the devices it waits for. number: of the round or the transfer. thing: the rendezvous or the edge. limit: it
    waits only because too many operations are in flight.
    """

    event: TraceEvent
    peers: tuple[int, ...]
    number: int
    thing: Rendezvous | Edge
    limit: bool = False


@dataclass(frozen=True)
class Mismatch:
    """Two devices that enter one round, or one transfer, with instructions that do not belong together."""

    devices: tuple[int, int]
    sites: tuple[CommunicationSite, CommunicationSite]
    number: int
    thing: Rendezvous | Edge


@dataclass(frozen=True)
class Open:
    """A device at a loop or branch that only the run decides, where the decision matters. branch: with which of the
    traces all would not go on; None where members may decide differently.  part: how far they come with it."""

    choice: Choice
    branch: int | None = None
    part: Progress | None = None


@dataclass
class Progress:
    """Devices with their traces. reading: SYNCHRONOUS or BUFFERED (communication.py).

    After `run`: stops, open_ and lost by device; a device that is in none of them has finished.
    """

    traces: Mapping[int, Trace]
    reading: int
    counters: Counters = field(default_factory=Counters)
    in_loop: bool = False
    stops: dict[int, Stop] = field(default_factory=dict)
    open_: dict[int, Open] = field(default_factory=dict)
    lost: dict[int, TraceEvent] = field(default_factory=dict)  # at the end of an unknown transfer
    mismatches: list[Mismatch] = field(default_factory=list)
    uncounted: set[int] = field(default_factory=set)  # ids of rendezvous and edges behind choices: numbers aren't known

    def __post_init__(self) -> None:
        self.places: dict[int, list[list[Any]]] = {device: [[trace, 0]] for device, trace in self.traces.items()}
        self._rendezvous: dict[int, int] = {}  # device -> the round that it has begun in the ROUND at hand
        self._waiting: dict[Hashable, list[int]] = {}
        self._stopped: dict[int, tuple[TraceEvent, int, Rendezvous | Edge, bool]] = {}
        self._ready: deque[int] = deque(self.traces)
        self._arrived: dict[Hashable, set[int]] = {}

    @property
    def has_finished(self) -> bool:
        return not (self.stops or self.open_ or self.lost or self.mismatches)

    def run(self) -> Progress:
        while self._ready:
            self._advance(self._ready.popleft())
        self.stops = {device: self._stop_of(device, *stopped) for device, stopped in self._stopped.items()}
        return self

    def as_buffered(self) -> Progress:
        """How far the devices get in buffered mode, from where the synchronous mode has stopped them.

        For programs with the same rounds in both modes: then each event of the synchronous mode happens in the buffered
        one, too.
        """
        found = copy(self)
        found.reading, found._ready = BUFFERED, deque(dict.fromkeys((*self._stopped, *self.open_, *self.lost)))
        found._stopped, found._waiting, found._arrived = {}, {}, {}
        found.stops, found.open_, found.lost, found.mismatches = {}, {}, {}, []
        for flow in self.counters.flows.values():
            flow.asleep.clear()
        return found.run()

    def has_begun(self, device: int) -> bool:
        """Whether the device waits inside a round that it has entered, not before one."""
        return device in self._rendezvous

    def _wake(self, key: Hashable) -> None:
        for device in self._waiting.pop(key, ()):
            del self._stopped[device]
            self._ready.append(device)

    def _complete(self, key: Hashable) -> None:
        """A round is over: devices that wait for its end go on, and those that wait to begin another one may."""
        for device in self._waiting.pop(key, ()):
            if not self._stopped.pop(device)[3]:
                self._rendezvous.pop(device, None)
                self.places[device][-1][1] += 1
            self._ready.append(device)

    def _advance(self, device: int) -> None:
        at("")
        places = self.places[device]
        while places:
            place = places[-1]
            trace, position = place
            while position < len(trace):
                item = trace[position]
                if type(item) is TraceEvent:
                    if not self._happens(device, item):
                        place[1] = position
                        return
                    position += 1
                elif type(item) is Split:
                    position += 1
                    mine = item.part_of(device)
                    if mine:
                        place[1] = position
                        places.append([mine, 0])
                        break
                else:
                    place[1] = position
                    if not self._comes(device, item):
                        return
                    position += 1
            else:
                places.pop()

    # --- events

    def _stop(
        self,
        device: int,
        event: TraceEvent,
        number: int,
        thing: Rendezvous | Edge,
        key: Hashable,
        *,
        limit: bool = False,
    ) -> bool:
        self._stopped[device] = (event, number, thing, limit)
        self._waiting.setdefault(key, []).append(device)
        return False

    def _stop_of(self, device: int, event: TraceEvent, number: int, thing: Rendezvous | Edge, limit: bool) -> Stop:
        """With the peers that are missing, which costs too much to be asked at every stop."""
        if isinstance(thing, Edge):
            peers: tuple[int, ...] = (thing.source if device == thing.target else thing.target,)
        else:
            come = self.counters.of(thing).come
            awaited = thing.released_by(device) if limit else thing.awaited(device)
            peers = tuple(dict.fromkeys(m for m in awaited if come.get(m, 0) <= number))
        return Stop(event, peers, number, thing, limit)

    def _happens(self, device: int, event: TraceEvent) -> bool:
        """Whether the device has executed the event; if not, the event that it waits for has been noted."""
        act = event.act
        if act is ROUND or act is START:
            rendezvous = event.site.rendezvous_by_device[self.reading].get(device)
            return rendezvous is None or self._round(device, event, rendezvous)
        if act is SEND or act is RECV:
            return self._start(device, event)
        ticket = event.ticket
        if type(ticket) is dict:
            ticket = ticket.get(device)
        if ticket is None:
            self.lost[device] = event
            return False
        begun = self.counters.tickets.get((device, id(ticket)))
        if begun is None:
            begun = self.counters.begun(device, ticket)  # type: ignore[arg-type]
            if begun is None:  # the device takes no part
                return True
        thing, number = begun
        return self._ended(device, event, thing, number) if act is DONE else self._over(device, event, thing, number)

    def _round(self, device: int, event: TraceEvent, rendezvous: Rendezvous) -> bool:
        number = self._rendezvous.get(device)
        if number is None:
            rounds = self.counters.rounds.get(id(rendezvous)) or self.counters.of(rendezvous)
            number = rounds.come.get(device, 0)
            if number >= rendezvous.limit and not self._may_start(
                device, event, rendezvous, rounds, number - rendezvous.limit
            ):
                return False
            first = rounds.first.get(number)
            if first is None:
                rounds.first[number] = (device, event.site)
            elif first[1] is not event.site and first[1].signature != event.site.signature:
                self.mismatches.append(Mismatch((first[0], device), (first[1], event.site), number, rendezvous))
                self._stop(device, event, number, rendezvous, ("never", device))
                return False
            rounds.come[device] = number + 1
            arrived = rounds.arrived.get(number, 0) + 1
            if arrived == rounds.size:
                rounds.arrived.pop(number, None)
                rounds.first.pop(number, None)
                rounds.complete = number + 1
                self._complete((id(rendezvous), number))
            else:
                rounds.arrived[number] = arrived
            if rendezvous.pairs:
                self._wake((id(rendezvous), device, number))
            if event.ticket is not None:
                assert isinstance(event.ticket, Ticket)
                self.counters.tickets[device, id(event.ticket)] = (rendezvous, number)
            if event.act is START or rounds.complete > number:
                return True
            self._rendezvous[device] = number
        if not self._ended(device, event, rendezvous, number):
            return False
        del self._rendezvous[device]
        return True

    def _ended(self, device: int, event: TraceEvent, rendezvous: Rendezvous, number: int) -> bool:
        rounds = self.counters.of(rendezvous)
        if not rendezvous.pairs:
            if rounds.complete > number:
                return True
            return self._stop(device, event, number, rendezvous, (id(rendezvous), number))
        for peer in rendezvous.awaited(device):
            if rounds.come.get(peer, 0) <= number:
                return self._stop(device, event, number, rendezvous, (id(rendezvous), peer, number))
        return True

    def _may_start(self, device: int, event: TraceEvent, rendezvous: Rendezvous, rounds: Rounds, number: int) -> bool:
        """Whether the device may begin one more round, with that one the oldest in flight."""
        if not rendezvous.pairs:
            if rounds.complete > number:
                return True
            return self._stop(device, event, number, rendezvous, (id(rendezvous), number), limit=True)
        for peer in rendezvous.released_by(device):
            if rounds.come.get(peer, 0) <= number:
                return self._stop(device, event, number, rendezvous, (id(rendezvous), peer, number), limit=True)
        return True

    def _start(self, device: int, event: TraceEvent) -> bool:
        """A send or a recv."""
        found = event.site.edges.get(device)
        if found is None:
            return True
        edge, bounds = found
        if bounds is not None:
            if self.in_loop:  # the iteration is not known
                self.lost[device] = event
                return False
            key = (device, id(event.site))
            number = self.counters.executions.get(key, 0)
            if not bounds[0] <= number <= bounds[1]:
                self.counters.executions[key] = number + 1
                return True
        flow = self.counters.flows.get(edge) or self.counters.flow(edge)
        if event.act is SEND:
            number = flow.sends
            oldest = number - MOST_SENDS
            if oldest >= 0:
                free = flow.recvs > oldest if self.reading == BUFFERED else oldest in flow.taken
                if not free:
                    kind = "recv" if self.reading == BUFFERED else "taken"
                    return self._sleep(device, event, oldest, edge, flow, (kind, oldest), limit=True)
                flow.taken.discard(oldest)
            flow.sends = number + 1
            flow.sent[number] = event.site
            kind = "send"
        else:
            number = flow.recvs
            flow.recvs = number + 1
            kind = "recv"
        if flow.asleep:
            self._rouse(flow, (kind, number))
        self.counters.tickets[device, id(event.ticket)] = (edge, number)  # its own: no start has one by device
        if bounds is not None:
            self.counters.executions[key] = self.counters.executions.get(key, 0) + 1
        return True

    def _over(self, device: int, event: TraceEvent, edge: Edge, number: int) -> bool:
        """A send-done or a recv-done."""
        flow = self.counters.flows.get(edge) or self.counters.flow(edge)
        if event.act is SEND_DONE:
            if flow.recvs > number:
                return True
            return self._sleep(device, event, number, edge, flow, ("recv", number))
        if flow.sends <= number:
            return self._sleep(device, event, number, edge, flow, ("send", number))
        sent = flow.sent.pop(number, None)
        received = (event.site.instruction.shape.elements or (None,))[0]
        if sent is not None and received is not None and not payload_of(sent.instruction).compatible(received):
            self.mismatches.append(Mismatch((edge.source, device), (sent, event.site), number, edge))
            return self._stop(device, event, number, edge, ("never", device))
        flow.taken.add(number)
        if flow.asleep:
            self._rouse(flow, ("taken", number))
        return True

    def _sleep(
        self, device: int, event: TraceEvent, number: int, edge: Edge, flow: Flow, key: Hashable, *, limit: bool = False
    ) -> bool:
        self._stopped[device] = (event, number, edge, limit)
        flow.asleep[key] = device
        return False

    def _rouse(self, flow: Flow, key: Hashable) -> None:
        device = flow.asleep.pop(key, None)
        if device is not None:
            del self._stopped[device]
            self._ready.append(device)

    # --- decisions that only the run makes

    def _comes(self, device: int, choice: Choice) -> bool:
        """Whether the device has passed a decision that only the run makes, because no device depends on it."""
        circle = self._circle(device, choice)
        if len(circle) == 1:
            self.places[device][-1][1] += 1
            return True
        key = choice.decision.key(device)
        here = self._arrived.setdefault(key, set())
        here.add(device)
        self.open_[device] = Open(choice)
        if len(here) < len(circle):
            return False
        members, pending = set(circle), list(circle)
        while pending:
            other = pending.pop()
            if other not in here:
                return False
            more = self._circle(other, self.open_[other].choice) - members
            members |= more
            pending += more
        failed = self._try(sorted(members))
        here -= members
        if failed is None:
            self._lose_count(members)
        for member in members:
            if failed is None:
                del self.open_[member]
                self.places[member][-1][1] += 1
                if member != device:
                    self._ready.append(member)
            else:
                self.open_[member] = Open(self.open_[member].choice, *failed)
        return failed is None

    def _lose_count(self, members: set[int]) -> None:
        """Only the run tells how many rounds and transfers the members pass."""
        for choice in {id(self.open_[member].choice): self.open_[member].choice for member in members}.values():
            for site in choice.sites:
                for by_device in site.rendezvous_by_device:
                    self.uncounted.update(map(id, by_device.values()))
                self.uncounted.update(id(edge) for edge, _ in site.edges.values())

    def _circle(self, device: int, choice: Choice) -> frozenset[int]:
        """The devices that communicate with this one in it, directly or through others."""
        found = choice.circles.get(device)
        if found is None:
            members, pending = {device}, [device]
            seen: set[int] = set()
            while pending:
                one = pending.pop()
                for site in choice.sites:
                    peers = site.peers(one)
                    if id(peers) in seen:
                        continue
                    seen.add(id(peers))
                    for peer in peers:
                        if peer not in members:
                            members.add(peer)
                            pending.append(peer)
            found = frozenset(members)
            choice.circles.update(dict.fromkeys(members, found))
        return found

    def _try(self, members: list[int]) -> tuple[int, Progress | None] | None:
        """None if the members go on for every decision that all of them take; else the trace with which they do not,
        and how far they get with it."""
        choices = {member: self.open_[member].choice for member in members}
        counts = {len(choice.branches) for choice in choices.values()}
        if len(counts) != 1 or len({choice.is_loop for choice in choices.values()}) != 1:
            return 0, None
        is_loop = choices[members[0]].is_loop
        for number in range(counts.pop()):
            traces = {member: choice.branches[number] for member, choice in choices.items()}
            part = Progress(traces, self.reading, Counters(self.counters), in_loop=is_loop or self.in_loop)
            part.run()
            if (
                not part.has_finished
                or not part.is_balanced()
                or not all(part.repeats(member, choice) for member, choice in choices.items())
            ):
                return number, part
            if is_loop:
                part.counters.commit()
        return None

    def is_balanced(self) -> bool:
        """Whether a part has left nothing in flight that was not so before."""
        whole = self.counters.whole
        assert whole is not None
        for key, rounds in self.counters.rounds.items():
            rendezvous = self.counters.rendezvous_by_id[key]
            before = whole.of(rendezvous)
            if len({rounds.come.get(m, 0) - before.come.get(m, 0) for m in rendezvous.members}) > 1:
                return False
        for edge, flow in self.counters.flows.items():
            earlier = whole.flow(edge)
            if flow.sends - earlier.sends != flow.recvs - earlier.recvs:
                return False
        return True

    def repeats(self, device: int, choice: Choice) -> bool:
        """Whether an iteration leaves the loop-carried contexts as many rounds behind as they were before it."""
        whole = self.counters.whole
        assert whole is not None
        for old, new in choice.carried:
            pair = [t.get(device) if isinstance(t, dict) else t for t in (old, new)]
            if pair[0] is None or pair[1] is None:
                return False
            before, after = whole.begun(device, pair[0]), self.counters.begun(device, pair[1])
            if before is None and after is None:
                continue
            if before is None or after is None or before[0] != after[0]:
                return False
            if self._behind(whole, device, before) != self._behind(self.counters, device, after):
                return False
        return True

    @staticmethod
    def _behind(counters: Counters, device: int, begun: tuple[Any, int]) -> int:
        thing, number = begun
        if isinstance(thing, Rendezvous):
            return counters.of(thing).come.get(device, 0) - number
        flow = counters.flow(thing)
        return (flow.sends if thing.source == device else flow.recvs) - number


__all__ = ["BUFFERED", "SYNCHRONOUS", "Mismatch", "Open", "Progress", "Stop"]
