"""The critical path of a call: what the last device to end has done, back to the call's begin.

Where a device has waited, the path goes on in the device that came last to the same round or transfer, from the moment
at which that came: only a change on the path makes the call shorter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from distxla.collectives.recorder import RecordedEvent
from distxla.lazy_dataclass import dataclass

MOST_PIECES = 10_000  # of a call, the last ones

Keys = Callable[[RecordedEvent], Iterable[Hashable]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the path. Times in ns, by the driver's clock."""

    device: int
    begin: float
    end: float


def critical_path(events: Mapping[int, Sequence[RecordedEvent]], keys: Keys) -> tuple[Piece, ...]:
    """The pieces, in the order of time, without gaps.

    events: of one call, by device, in order; of an event that has not ended, the path knows its begin only.
    keys: equal for events of several devices that wait for one another.
    """
    return tuple([*_backwards(events, keys)][::-1])


def _backwards(events: Mapping[int, Sequence[RecordedEvent]], keys: Keys) -> Iterator[Piece]:
    arrivals: dict[Hashable, list[RecordedEvent]] = defaultdict(list)
    for row in events.values():
        for event in row:
            for key in keys(event):
                arrivals[key].append(event)
    ends = {device: max(_end(event) for event in row) for device, row in events.items() if row}
    if not ends:
        return
    device = max(ends, key=lambda d: (ends[d], -d))
    now, places = ends[device], {d: len(row) for d, row in events.items()}
    for _ in range(MOST_PIECES):
        place, cause = _last_cause(events[device], places[device], now, arrivals, keys)
        places[device] = place
        if cause is None:
            begin = min(event.begun for event in events[device])
            if begin < now:
                yield Piece(device, begin, now)
            return
        yield Piece(device, cause.begun, now)
        device, now = cause.device, cause.begun


def _last_cause(
    row: Sequence[RecordedEvent],
    place: int,
    now: float,
    arrivals: Mapping[Hashable, Sequence[RecordedEvent]],
    keys: Keys,
) -> tuple[int, RecordedEvent | None]:
    """The newest event before a moment in which the device waited for one that came later, and that one's event."""
    for at in range(place - 1, -1, -1):
        event = row[at]
        if event.waited is None or event.begun >= now or event.resumed is None:
            continue
        others = [other for key in keys(event) for other in arrivals[key] if other.device != event.device]
        last = max(others, key=lambda other: other.begun, default=None)
        if last is not None and event.waited < last.begun < now:
            return at, last
    return 0, None


def _end(event: RecordedEvent) -> float:
    return event.ended if event.ended is not None else event.begun


__all__ = ["Piece", "critical_path"]
