"""Why devices can't go on in their programs' present order, and which instructions could change places.

A cycle of waits says: each device waits in one instruction for another one that its neighbour executes later. In any
order in which no device waits for ever, at least one of these pairs is reversed, since each instruction waits for the
same ones in every order (reordering.py keeps the order that identifies the k-th of a kind).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from itertools import islice

from distxla.ir.instruction import Instruction
from distxla.lazy_dataclass import dataclass
from distxla.scheduler.simulation.blocked_devices import chain_of, needed_event, never_go_on, rounds_from
from distxla.scheduler.simulation.communication import Communication, Rendezvous
from distxla.scheduler.simulation.deferred import RunState
from distxla.scheduler.simulation.progress import BUFFERED, SYNCHRONOUS, Mismatch, Progress
from distxla.scheduler.simulation.symmetry import advances_in_step
from distxla.scheduler.simulation.traces import Act, Trace, TraceEvent, events
from distxla.scheduler.simulation.tracing import TooLongError, Tracer

STARTS = (Act.SEND, Act.RECV, Act.START)  # these never wait
DONES = (Act.SEND_DONE, Act.RECV_DONE, Act.DONE)  # no device waits for these


class Standing(IntEnum):
    """How good an order is: the higher the better."""

    STUCK = 0
    UNKNOWN = 1
    SAFE = 2


@dataclass(frozen=True)
class Reversal:
    """Of a program the instruction that would have to be executed before the one that waits.

    is_free: the first never waits, so that it harms no device to execute it earlier.  is_late: no device waits for the
    second, so that it harms none to execute it later.
    """

    program: int
    needed: Instruction
    waits: Instruction
    is_free: bool
    is_late: bool


@dataclass(frozen=True)
class Finding:
    """The result of following an order. reversals: a better order has at least one of them; None if nothing is known of
    better ones.  cost: events that were followed."""

    standing: Standing
    reversals: tuple[Reversal, ...] | None
    cost: int


def find(communication: Communication) -> Finding:
    """Follow the programs in their present order."""
    world = RunState(communication.counts)
    traces: dict[int, Trace] = {}
    cost = 0
    for number, (devices, _) in enumerate(communication.programs):
        try:
            trace = Tracer(communication, number, world).trace()
        except TooLongError:
            return Finding(Standing.UNKNOWN, None, cost)
        cost += len(devices) * sum(1 for _ in events(trace))
        traces.update(dict.fromkeys(devices, trace))
    if len(communication.programs) == 1 and advances_in_step(communication, trace):
        return Finding(Standing.SAFE, None, cost)
    synchronous = Progress(traces, SYNCHRONOUS).run()
    if synchronous.has_finished:
        return Finding(Standing.SAFE, None, cost)
    by_synchronous = _reversals(synchronous)  # before its counters go on
    buffered = synchronous.as_buffered() if communication.counts_rounds_equally else Progress(traces, BUFFERED).run()
    by_buffered = _reversals(buffered)
    if buffered.mismatches or never_go_on(buffered):
        return Finding(Standing.STUCK, by_buffered, cost)
    return Finding(Standing.UNKNOWN, by_synchronous if by_buffered is None else by_buffered, cost)


def _reversals(progress: Progress) -> tuple[Reversal, ...] | None:
    """None where nothing says which order would be better; empty where none is."""
    if progress.mismatches:
        return _matching(progress, progress.mismatches[0])
    stuck = never_go_on(progress)
    if stuck:
        return _breaking(progress, chain_of(progress, stuck))
    parts = {id(open_.part): open_.part for _, open_ in sorted(progress.open_.items()) if open_.part is not None}
    found = (_reversals(part) for part in parts.values())
    return next((reversals for reversals in found if reversals), None)


def _breaking(progress: Progress, chain: Iterable[tuple[int, int]]) -> tuple[Reversal, ...]:
    """The reversals that would break a cycle of (device, the device it waits for)."""
    found = []
    for device, peer in chain:
        needed = needed_event(progress, progress.stops[device], peer)
        if needed is None or peer not in progress.stops:  # it never comes, in whichever order
            return ()
        found.append(_reversal(needed, progress.stops[peer].event))
    return tuple(sorted(found, key=lambda reversal: (not reversal.is_free, not reversal.is_late)))


def _matching(progress: Progress, found: Mismatch) -> tuple[Reversal, ...]:
    """The reversals that would let two devices enter a round with the same instruction: either executes the other's
    instruction first."""
    reversals: list[Reversal] = []
    if isinstance(found.thing, Rendezvous):
        for device, mine, theirs in zip(found.devices, found.sites, reversed(found.sites), strict=True):
            later = islice(rounds_from(progress, device, found.thing, found.number), 1, None)
            event = next((e for e in later if e.site.signature == theirs.signature), None)
            if event is not None:
                is_free = event.act is Act.START
                reversals.append(Reversal(mine.program, event.site.instruction, mine.instruction, is_free, False))
    return tuple(reversals)


def _reversal(needed: TraceEvent, waits: TraceEvent) -> Reversal:
    return Reversal(
        needed.by.program, needed.by.instruction, waits.by.instruction, needed.act in STARTS, waits.act in DONES
    )


__all__ = ["Finding", "Reversal", "Standing", "find"]
