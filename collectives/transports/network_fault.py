"""Faults of the network between hosts, as data; a transport between hosts injects them (tcp/injected_faults.py)."""

from __future__ import annotations

from enum import StrEnum

from distxla.lazy_dataclass import dataclass


class FaultKind(StrEnum):
    """The effect on a message between hosts."""

    DROP = "drop"  # it is not sent
    DUPLICATE = "duplicate"  # it arrives twice
    CORRUPT = "corrupt"  # one bit of it is flipped
    DELAY = "delay"  # it and all later messages arrive later
    CUT = "cut"  # its sender's connections to all other hosts are closed


@dataclass(frozen=True)
class NetworkFault:
    """One fault, which happens once: to message `message` of round `round`.

    source, target: hosts; None for any.  instruction: its name, None for any.  round: from 1; counts the matching
    rounds in which `source` sends something to `target`, from the start of the cluster.  message: from 1; counts a
    round's messages.  seconds: of a delay.  bit: the one to flip, modulo the number of bits.
    """

    kind: FaultKind
    source: int | None = None
    target: int | None = None
    instruction: str | None = None
    round: int = 1
    message: int = 1
    seconds: float = 1.0
    bit: int = 0
