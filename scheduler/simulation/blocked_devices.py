"""Devices that are advanced as far as they can go: the device and the event that each waits for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from distxla.diagnosis.graph import Clauses, Deadlock, all_of, find_deadlock
from distxla.errors import InternalError
from distxla.scheduler.simulation.communication import Rendezvous
from distxla.scheduler.simulation.progress import Progress, Stop
from distxla.scheduler.simulation.traces import Act, Split, Trace, TraceEvent

MOST_LOOKED_AT = 100_000  # events ahead, in search of the one that a device waits for


def never_go_on(progress: Progress) -> set[int]:
    """The devices that can never go on, whatever the run decides: at least one device that they wait for can't go on
    either."""
    waiting = dict(progress.stops)
    maybe = set(progress.open_) | set(progress.lost)
    changed = True
    while changed:
        freed = [device for device, stop in waiting.items() if stop.peers and all(p in maybe for p in stop.peers)]
        changed = bool(freed)
        maybe.update(freed)
        for device in freed:
            del waiting[device]
    return set(waiting)


def chain_of(progress: Progress, stuck: set[int]) -> list[tuple[int, int]]:
    """(device, the device it waits for): a cycle if there is one, else one device that waits for a device whose
    program has ended."""
    seen: dict[int, int] = {}
    for start in sorted(stuck):
        path: list[tuple[int, int]] = []
        device = start
        while device not in seen:
            seen[device] = start
            peer = next((p for p in progress.stops[device].peers if p in stuck), None)
            if peer is None:
                break
            path.append((device, peer))
            device = peer
        members = [d for d, _ in path]
        if device in members:
            return path[members.index(device) :]
    device = next(d for d in sorted(stuck) if not any(p in stuck for p in progress.stops[d].peers))
    ended = next(p for p in progress.stops[device].peers if p not in progress.stops and p not in progress.open_)
    return [(device, ended)]


def wait_graph(progress: Progress, stuck: set[int]) -> Deadlock:
    """The deadlock of devices that can never go on."""
    clauses: dict[tuple[int, ...], Clauses] = {}
    waits = {}
    for device in sorted(stuck):
        peers = progress.stops[device].peers
        waits[device] = clauses.setdefault(peers, all_of(peers))
    alive = {*progress.stops, *progress.open_, *progress.lost}
    ended = {peer for peers in clauses for peer in peers if peer not in alive}
    found = find_deadlock(waits, ended)
    if found is None:
        raise InternalError(f"devices {sorted(stuck)} are stuck, but none of them waits for another one")
    return found


def needed_event(progress: Progress, stop: Stop, peer: int) -> TraceEvent | None:
    """The event that the peer would have to execute, among those that it still has to."""
    thing, counters = stop.thing, progress.counters
    if isinstance(thing, Rendezvous):
        rounds = counters.of(thing)
        wanted = rounds.first[stop.number][1].signature
        missed = [rounds.first[n][1].signature for n in range(rounds.come.get(peer, 0), stop.number)]
        same = (e for e in rounds_from(progress, peer, thing, stop.number - len(missed)) if e.site.signature == wanted)
        return next(islice(same, missed.count(wanted), None), None)
    later = ahead(progress, peer)
    sends = peer == thing.source
    left = stop.number - (counters.flow(thing).sends if sends else counters.flow(thing).recvs)
    for event in later:
        if left < 0:  # the recv has been executed, the value was not taken yet
            ticket = event.ticket.get(peer) if isinstance(event.ticket, dict) else event.ticket
            begun = counters.begun(peer, ticket) if event.act is Act.RECV_DONE and ticket is not None else None
            if begun is not None and begun == (thing, stop.number):
                return event
        elif event.act is (Act.SEND if sends else Act.RECV) and event.site.leads(peer, thing):
            if left == 0:
                return event
            left -= 1
    return None


def rounds_from(progress: Progress, device: int, rendezvous: Rendezvous, number: int) -> Iterator[TraceEvent]:
    """The events in which a device enters, or would enter, the rounds of a rendezvous from that number on."""

    def is_round(event: TraceEvent) -> bool:
        meets = event.act in (Act.ROUND, Act.START)
        return meets and event.site.rendezvous_by_device[progress.reading].get(device) is rendezvous

    later = ahead(progress, device)
    come = progress.counters.of(rendezvous).come.get(device, 0)
    if number < come:
        begun = [event for event in behind(progress, device) if is_round(event)]
        if progress.has_begun(device):
            begun += filter(is_round, islice(later, 1))
        yield from begun[len(begun) - (come - number) :]
    elif progress.has_begun(device):
        next(later, None)
    yield from islice(filter(is_round, later), max(0, number - come), None)


def behind(progress: Progress, device: int) -> Iterator[TraceEvent]:
    """The events that a device has executed, of choices every branch; all if it has ended."""
    places = progress.places[device]
    if not places:
        yield from _own(progress.traces[device], device)
    for depth, (trace, position) in enumerate(places):
        if depth + 1 < len(places):  # the last one has not ended
            position -= 1
        yield from _own(trace[:position], device)


def ahead(progress: Progress, device: int) -> Iterator[TraceEvent]:
    """The events that a device still has to execute, from its place on; nothing if it is not among those followed."""
    left = MOST_LOOKED_AT
    for trace, position in reversed(progress.places.get(device, ())):
        for event in _own(trace[position:], device):
            left -= 1
            if left < 0:
                return
            yield event


def _own(trace: Trace, device: int) -> Iterator[TraceEvent]:
    """A device's events of a trace, of choices those of every branch."""
    for item in trace:
        if isinstance(item, TraceEvent):
            yield item
            continue
        parts = [p for devices, p in item.parts if device in devices] if isinstance(item, Split) else item.branches
        for part in parts:
            yield from _own(part, device)
