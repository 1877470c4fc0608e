"""Faults as data: the kind, the device or host, and the time."""

from __future__ import annotations

from enum import StrEnum

from distxla.collectives.transports.network_fault import FaultKind, NetworkFault
from distxla.lazy_dataclass import dataclass, field
from distxla.location import Location


class Kind(StrEnum):
    """The effect of a fault."""

    KILL = "kill"
    STOP = "stop"
    DELAY = "delay"
    SLOW = "slow"
    HOST_LOST = "host-lost"
    DROP = "drop"
    DUPLICATE = "duplicate"
    CORRUPT = "corrupt"
    LATE = "late"
    CUT = "cut"
    FEED_ENDS = "feed-ends"
    RANDOM = "random"


class When(StrEnum):
    """The moment within an instruction. WAITING: when the device first has to wait in it."""

    BEFORE = "before"
    WAITING = "waiting"
    AFTER = "after"


BETWEEN_HOSTS = {
    Kind.DROP: FaultKind.DROP,
    Kind.DUPLICATE: FaultKind.DUPLICATE,
    Kind.CORRUPT: FaultKind.CORRUPT,
    Kind.LATE: FaultKind.DELAY,
    Kind.CUT: FaultKind.CUT,
}
IN_A_PROGRAM = frozenset({Kind.KILL, Kind.STOP, Kind.DELAY, Kind.SLOW, Kind.HOST_LOST})


@dataclass(frozen=True)
class Fault:
    """One fault.

    spec: its text.  device, host, source, target: -1 for none; source and target are the hosts between which the
    `message`-th message of a round is affected.  at: an instruction's name, "" for any that communicates.  round: the
    device's n-th execution of it, from 1.  ms: duration in milliseconds; 0 if no end is stated.  after: items of an
    infeed.  seed, count, kinds, rounds: of a random fault (drawing.py).  places: location of each key's value in the
    spec, for errors.
    """

    kind: Kind
    spec: str
    device: int = -1
    host: int = -1
    source: int = -1
    target: int = -1
    message: int = 1
    at: str = ""
    round: int = 1
    when: When = When.BEFORE
    ms: float = 0.0
    after: int = 0
    seed: int = 0
    count: int = 1
    kinds: tuple[Kind, ...] = ()
    rounds: int = 1
    places: dict[str, Location] = field(default_factory=dict, compare=False, repr=False)

    def between_hosts(self) -> NetworkFault:
        """The same fault for proxies; its kind is one of BETWEEN_HOSTS."""
        target = None if self.target < 0 else self.target
        kind, seconds = BETWEEN_HOSTS[self.kind], self.ms / 1000
        return NetworkFault(kind, self.source, target, self.at or None, self.round, self.message, seconds)

    def applies_to(self, device: int) -> bool:
        """Whether the device may carry it out. Which devices a host has is not known here."""
        return self.kind in IN_A_PROGRAM and self.device in (device, -1)
