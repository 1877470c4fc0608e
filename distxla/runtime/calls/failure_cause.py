"""Which of the things that have failed in a call its error names. Nothing here reads anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from distxla.lazy_dataclass import dataclass, field
from distxla.program.abi import Status


class Why(Enum):
    """A cause of a call's failure. Each goes before those below it; of ROUTINE to STATUS the first device's does."""

    DAMAGED = auto()  # a message between hosts: that ends the hosts, and with them the replicas
    SIGNALLED = auto()  # a replica has ended by a signal that its handler has seen: an error of the program
    ENDED = auto()  # a replica has ended
    LOST = auto()  # likewise, since the devices' state was read
    UNABLE = auto()  # a host can't go on, although its replicas live
    MISMATCHED = auto()  # devices have reached a round with different instructions
    ROUTINE = auto()  # a device's Python routine has failed
    OUT_OF_RANGE = auto()  # an entry of a device's ragged transfer
    STREAM = auto()  # a device did not get an item of a stream
    STATUS = auto()  # a device has failed otherwise
    OUTSIDE = auto()  # nothing here: another process has set the abort flag


class Cause(NamedTuple):
    """number: of the end of a process among `Facts.signals`, or of the device; else 0."""

    why: Why
    number: int = 0


@dataclass(frozen=True)
class Facts:
    """What is known of a call that has failed.

    damaged: messages between hosts.  signals: of the ends of processes that the devices' state shows, 0 where none was
    seen.  lost: devices whose processes have ended until now.  unable: hosts that can't go on.
    statuses: of the call's devices; none where one of the above tells the cause.  failed: devices that had failed when
    their state was read.  placed: devices whose last communicating instruction is known.
    """

    damaged: bool = False
    signals: Sequence[int] = ()
    lost: Collection[int] = ()
    unable: bool = False
    statuses: Mapping[int, int] = field(default_factory=dict)
    failed: Collection[int] = ()
    placed: Collection[int] = ()


_BY_STATUS: dict[int, Why] = {
    Status.ROUTINE_FAILED: Why.ROUTINE,
    Status.OUT_OF_RANGE: Why.OUT_OF_RANGE,
    Status.STREAM_ENDED: Why.STREAM,
    Status.ITEM_REFUSED: Why.STREAM,
}


def cause(facts: Facts) -> Cause:
    """The cause that goes before all others."""
    if facts.damaged:
        return Cause(Why.DAMAGED)
    if facts.lost:
        return _process_end(facts.signals)
    if facts.unable:
        return Cause(Why.UNABLE)
    if Status.MISMATCH in facts.statuses.values():
        return Cause(Why.MISMATCHED)
    # others may have failed since the report was made, which does not show them as failed
    for device in sorted(facts.statuses, key=lambda device: device not in facts.failed):
        if (status := facts.statuses[device]) not in (Status.OK, Status.ABORTED):
            return Cause(_by_status(status, is_placed=device in facts.placed), device)
    return Cause(Why.OUTSIDE)


def _process_end(signals: Sequence[int]) -> Cause:
    for number, signal in enumerate(signals):
        if signal:
            return Cause(Why.SIGNALLED, number)
    return Cause(Why.ENDED if signals else Why.LOST)


def _by_status(status: int, *, is_placed: bool) -> Why:
    why = _BY_STATUS.get(status, Why.STATUS)
    return Why.STATUS if why is Why.OUT_OF_RANGE and not is_placed else why
