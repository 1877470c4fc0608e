"""The flight recorder: each device's last events, in a ring in the control block. Layout, and how to read it.

An event is one execution of a communicating instruction (a site), from its begin to its end, with the wait in between;
where a trace is taken also one of a step that computes. The device writes it into its record (R_EVENT), and copies it
from there when the next one begins; so the last one is in the record. One without an end is one that it is still in, or
was in when its wait was aborted or the round failed; such a one is never copied.

Times are readings of the cycle counter, which all cores of a host have in common. The record has two
moments in both that counter and CLOCK_MONOTONIC (R_CLOCK), from which reading makes nanoseconds. A device that is
interrupted between its two readings has a wrong pair, so times of several devices are in order only where they are
made by one clock for the whole host (`CycleClock.of`).

Reading the clock takes longer than all the rest. A device that waits reads it anyway. Otherwise a device reads it

* at the begin of an event, if since its last reading there was a step that may take more than a microsecond, or about
  LOOK_EVERY events;
* at both ends of an event, if it moves LARGE_BYTES, if its program was compiled for traces, or if a trace is taken.

Other events have the time of the last reading, so times are never late, and early by some microseconds at most.

Event n (from 0) is at ring + (n & mask) * EVENT_BYTES. Reading needs no lock: an event that is overwritten during the
read is known by its number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Protocol

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.event import EVENT, EVENT_BYTES, EVENTS, STEP
from distxla.collectives.protocols.layout import packed
from distxla.lazy_dataclass import dataclass, replace

_EVENT = packed(*EVENT.words)
_CLOCK = packed(control_words.R_CLOCK)
assert _EVENT.size == EVENT_BYTES
TOGETHER_NS = 1_000_000_000  # within which moments of devices are compared: the clocks part by 0.5 ms a second at most


@dataclass(frozen=True)
class RecordedEvent:
    """One execution of a site, or of a step that computes. Times in ns of the host's CLOCK_MONOTONIC; where the device
    has never read that, readings of the cycle counter.

    number: of the device's events, from 0.  program: number of the loaded program.  site: index among its sites, or
    None, and then step: index among its steps.  run: the device's runs of programs so far, this one counted.
    round: of the site's communicator, from 1 in each call (channels: the transfer; streams: the item, from 0); 0 where
    the device took no part.  edge: of sends and recvs, equal for both ends of a pair; 0 for others.
    iteration: of the innermost loop with rounds around it, from 1; 0 outside loops.
    ended: None if it has not, or failed.  waited, resumed: begin of its first wait and end of the last one, None if
    there was none, or it goes on.  waits_for: the device or WAITS_FOR_* of the last wait, if waited.
    """

    device: int
    number: int
    program: int
    site: int | None
    step: int | None
    run: int
    round: int
    edge: int
    iteration: int
    begun: float
    ended: float | None
    waited: float | None
    resumed: float | None
    waits_for: int | None

    def shifted(self, nanoseconds: float) -> RecordedEvent:
        """The same by a clock that is ahead by that much."""
        if not nanoseconds:
            return self
        begun, *others = (
            None if time is None else time + nanoseconds for time in (self.begun, self.ended, self.waited, self.resumed)
        )
        assert begun is not None
        ended, waited, resumed = others
        return replace(self, begun=begun, ended=ended, waited=waited, resumed=resumed)


class Recorded(Protocol):
    """Device records and recorders as they were at one moment."""

    def row(self, device: int) -> bytes:
        """RECORD_BYTES, or nothing where the record is not known."""

    def ring(self, device: int) -> bytes:
        """The ring, from its first place on; nothing where it is not known."""


@dataclass(frozen=True)
class CycleClock:
    """Makes nanoseconds of the host's CLOCK_MONOTONIC out of readings of its cycle counter."""

    ticks: int
    nanoseconds: int
    rate: float

    @staticmethod
    def of(*rows: bytes) -> CycleClock:
        """The clock of the devices of a host with these records; the counter itself where they have no moments.

        A device reads the counter after the other clock. One that is interrupted in between reads too late a count, so
        the best moment is the one with the least count for its time.
        """
        found = [_CLOCK.unpack_from(row, control_words.R_CLOCK) for row in rows]
        known = [moments for moments in found if moments[2] > moments[0] > 0]
        if not known:
            return CycleClock(0, 0, 1.0)
        first, first_ns, last, last_ns = max(known, key=lambda moments: moments[3] - moments[1])
        rate = (last_ns - first_ns) / (last - first)
        newest = max(nanoseconds for *_, nanoseconds in known)
        near = [(ticks, ns) for _, _, ticks, ns in known if newest - ns <= TOGETHER_NS]
        ticks, nanoseconds = max(near, key=lambda moment: moment[1] - last_ns - (moment[0] - last) * rate)
        return CycleClock(ticks, nanoseconds, rate)

    def time(self, ticks: int) -> float:
        return self.nanoseconds + (ticks - self.ticks) * self.rate


def ring_of(row: bytes, device: int) -> tuple[int, int]:
    """Offset and bytes of the ring of a device with this record, in its host's control block."""
    mask = control_words.R_RING_MASK.read(row) | (EVENTS - 1)
    return control_words.recorder_offset(device) + control_words.R_RING.read(row), (mask + 1) * EVENT_BYTES


def pieces(row: bytes, device: int, most: int = EVENTS) -> Iterator[tuple[int, int]]:
    """(offset, bytes) in the control block of the last events, up to `most` of them, oldest first."""
    begin, size = ring_of(row, device)
    count = control_words.R_EVENTS.read(row)
    kept = min(count, most, size // EVENT_BYTES)
    first, end = (count - kept) * EVENT_BYTES % size, count * EVENT_BYTES % size
    if kept and first >= end:
        yield begin + first, size - first
        first = 0
    if first < end:
        yield begin + first, end - first


def events(records: Recorded, device: int) -> list[RecordedEvent]:
    """The last events of a device, oldest first; none where they are not known. An event is left out while the device
    replaces it."""
    row = records.row(device)
    return list(decode(records.ring(device), row, device)) if row else []


def decode(data: bytes, row: bytes, device: int, clock: CycleClock | None = None) -> Iterator[RecordedEvent]:
    """Events from the memory that `pieces` of the record `row` name, one after the other, and the last one, which is
    still in the record. clock: of the host, for times that are compared with other devices'; without one, by this
    record alone."""
    clock, count = clock or CycleClock.of(row), control_words.R_EVENTS.read(row)
    begun, before, waited, resumed, round_, mark, *others = _EVENT.unpack_from(row, control_words.R_EVENT)
    moments = waited, resumed, round_ - before, mark
    last = number_of(row)
    first = count - len(data) // EVENT_BYTES
    for number, fields in enumerate(_EVENT.iter_unpack(data[: len(data) // EVENT_BYTES * EVENT_BYTES]), first):
        if number == last:
            yield _event(device, number, (begun, control_words.R_NOW.read(row), *moments, *others), clock)
        elif fields[5] == (number + 1) & 0xFFFFFFFF:
            yield _event(device, number, fields, clock)
    if last == count:
        yield _event(device, count, (begun, 0, *moments, *others), clock)


def number_of(row: bytes) -> int | None:
    """Of the event in the record: R_EVENTS where it has not ended, or has failed, one less where it has ended but has
    not yet been copied; else None."""
    count, mark = control_words.R_EVENTS.read(row), control_words.R_NUMBER.read(row)
    found = {(count + 1) & 0xFFFFFFFF: count, count & 0xFFFFFFFF: count - 1}.get(mark)
    return found if found is not None and found >= 0 else None


def _event(device: int, number: int, fields: Sequence[int], clock: CycleClock) -> RecordedEvent:
    begun, ended, waited, resumed, round_, _, site, edge, iteration, run, program, waits_for = fields
    is_step = site & STEP != 0
    return RecordedEvent(
        device,
        number,
        program,
        None if is_step else site,
        site & ~STEP if is_step else None,
        run,
        round_,
        edge,
        iteration,
        clock.time(begun),
        clock.time(ended) if ended else None,
        clock.time(waited) if waited else None,
        clock.time(resumed) if waited and resumed else None,
        waits_for if waited else None,
    )


def iterations(records: Recorded, device: int) -> tuple[int, ...]:
    """Iterations begun of the loops with rounds around the step that the device is in, outermost first, as far as they
    are counted. Those behind the loops that the site has are left over from others."""
    row = records.row(device)
    first = control_words.R_ITERATIONS + 4
    return struct.unpack_from(f"<{control_words.LOOP_DEPTHS - 1}I", row, first) if row else ()
