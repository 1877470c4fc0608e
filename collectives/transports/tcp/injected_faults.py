"""Injected faults between hosts: a proxy drops, repeats, damages or delays messages, or cuts off its host.

Links ask a FrameFaults about each frame before it is sent, after it was numbered and sealed, so the receiver sees
the effect of a faulty network. A proxy without faults has no FrameFaults.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from distxla.collectives.transports.network_fault import FaultKind, NetworkFault
from distxla.collectives.transports.tcp.subject import Subject
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Leaving:
    """A frame that is about to be sent. source, target: hosts."""

    source: int
    target: int
    subject: Subject


class FrameFaults(Protocol):
    """Decides which frames are affected by a fault. Called by the threads of all links; must not block."""

    def outgoing(self, frame: Leaving) -> NetworkFault | None:
        """The fault of a frame, or None."""


class PlannedFaults:
    """FrameFaults of a list. told: callback for a fault that happens, with its index in the list and a description."""

    def __init__(self, faults: Sequence[NetworkFault], told: Callable[[int, str], None]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._waiting = dict(enumerate(faults))
        self._rounds: dict[tuple[int, int, int], dict[tuple[tuple[int, ...], int], int]] = {}
        self._messages: dict[tuple[int, int, int], int] = {}

    def outgoing(self, frame: Leaving) -> NetworkFault | None:
        """See FrameFaults."""
        with self._lock:
            found = [number for number, fault in self._waiting.items() if self._meets(number, fault, frame)]
            if not found:
                return None
            fault = self._waiting.pop(found[0])
        self._told(found[0], done_text(fault, frame))
        return fault

    def _meets(self, number: int, fault: NetworkFault, frame: Leaving) -> bool:
        subject = frame.subject
        wanted = (fault.source, frame.source), (fault.target, frame.target), (fault.instruction, subject.instruction)
        if any(want not in (None, found) for want, found in wanted):
            return False
        key = number, frame.source, frame.target
        rounds = self._rounds.setdefault(key, {})
        if rounds.setdefault((subject.devices, subject.round), len(rounds) + 1) != fault.round:
            return False
        self._messages[key] = self._messages.get(key, 0) + 1
        return self._messages[key] == fault.message


def done_text(fault: NetworkFault, frame: Leaving) -> str:
    """Describes, for reports, the effect on the message."""
    way = f"host {frame.source} to host {frame.target}"
    what = {
        FaultKind.DROP: "dropped",
        FaultKind.DUPLICATE: "sent twice",
        FaultKind.CORRUPT: "corrupted in a bit",
        FaultKind.DELAY: f"delayed by {fault.seconds:g} s",
    }
    if fault.kind is FaultKind.CUT:
        return f"host {frame.source} cut off before it sent {frame.subject} to host {frame.target}"
    return f"{frame.subject}, from {way}, {what[fault.kind]}"
