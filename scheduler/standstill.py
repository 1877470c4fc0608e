"""Devices that have gone on as far as they can: who waits for whom, and what for."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.scheduler.communication import Meeting
from distxla.scheduler.progress import Progress, Stop
from distxla.scheduler.traces import Act, Event, Split, events

MOST_LOOKED_AT = 100_000  # events ahead, in search of the one that somebody waits for


def never_go_on(progress: Progress) -> set[int]:
    """The devices that can never go on, whatever the run decides: those of which not all that they wait for may."""
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
    """(device, for whom it waits): a cycle if there is one, else one device that waits for somebody who has ended."""
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


def needed_event(progress: Progress, stop: Stop, peer: int) -> Event | None:
    """What the peer would have to execute, of what it still has to."""
    thing, counters = stop.thing, progress.counters
    later = ahead(progress, peer)
    if isinstance(thing, Meeting):
        if progress.has_begun(peer):
            next(later, None)
        left = stop.number - counters.of(thing).come.get(peer, 0)
        for event in later:
            if event.act in (Act.MEET, Act.BEGIN) and event.site.meetings[progress.reading].get(peer) is thing:
                if left <= 0:
                    return event
                left -= 1
        return None
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


def ahead(progress: Progress, device: int) -> Iterator[Event]:
    """What a device still has to execute, beginning with where it stands."""
    left = MOST_LOOKED_AT
    for trace, position in reversed(progress.places[device]):
        for item in trace[position:]:
            left -= 1
            if left < 0:
                return
            if isinstance(item, Event):
                yield item
            elif isinstance(item, Split):
                for devices, part in item.parts:
                    if device in devices:
                        yield from events(part)
            else:
                yield from events([item])


__all__ = ["MOST_LOOKED_AT", "ahead", "chain_of", "needed_event", "never_go_on"]
