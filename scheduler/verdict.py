"""What is known of a run before it begins, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from distxla.errors import Location

MOST_SHOWN = 8  # devices of a kind that the text names one by one


class Outcome(Enum):
    """SAFE: every run ends, if the host feeds it.  DEADLOCK: none does.  UNKNOWN: depends on what only the run has."""

    SAFE = "safe"
    DEADLOCK = "deadlock"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Place:
    """An instruction of a program, as people find it."""

    instruction: str
    opcode: str
    location: str | None
    frame: str | None

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.location, self.frame and f"from {self.frame}") if part)
        return f"{self.instruction} ({where})" if where else self.instruction


@dataclass(frozen=True)
class Wait:
    """A device that can never go on.

    place: where it stands.  peer: for whom it waits.  others: for whom besides.  until: what that one would have to do.
    needed: the instruction in which it would, None if it has none.  behind: where it stands instead, None if it has
    ended.
    """

    device: int
    place: Place
    peer: int | None
    others: tuple[int, ...]
    until: str
    needed: Place | None
    behind: Place | None

    def __str__(self) -> str:
        text = f"device {self.device} waits in {self.place}"
        if self.peer is None:
            return f"{text}: {self.until}"
        text += f" for device {self.peer} {self.until}; device {self.peer} "
        if self.behind is None:
            text += "has ended"
        elif self.needed is None:
            text += f"waits in {self.behind} and has no such instruction behind it"
        else:
            text += f"would in {self.needed}, but waits in {self.behind}"
        if self.others:
            text += f" (device {self.device} also waits for {named(self.others)})"
        return text


@dataclass(frozen=True)
class Undecided:
    """What only the run decides, and matters. by: the instruction that asks.  cause: where the answer comes from."""

    devices: tuple[int, ...]
    by: Place
    cause: Place
    why: str

    def __str__(self) -> str:
        cause = "" if self.cause == self.by else f" is decided by {self.cause}"
        return f"{self.by}{cause}: {self.why} ({named(self.devices)})"


@dataclass(frozen=True)
class Verdict:
    """cycle: devices that wait for each other, each for the next, the last one for the first; empty where somebody
    waits for what never comes.  behind: further devices that wait for these.  parting: what took the first one and
    whom it waits for different ways.  location: of the first one.  channel: on which it waits, if on one.
    never_end: number of devices that can never go on, 0 where that is not known."""

    outcome: Outcome
    summary: str
    devices: int
    cycle: tuple[Wait, ...] = ()
    waits: tuple[Wait, ...] = ()
    behind: tuple[int, ...] = ()
    parting: Place | None = None
    undecided: tuple[Undecided, ...] = ()
    hint: str | None = None
    is_mismatch: bool = False
    location: Location | None = None
    channel: int | None = None
    never_end: int = 0

    @property
    def text(self) -> str:
        """The verdict in lines."""
        kind = {Outcome.SAFE: "deadlock", Outcome.UNKNOWN: "warning"}.get(self.outcome)
        lines = [f"{kind or ('mismatch' if self.is_mismatch else 'deadlock')}: {self.summary}"]
        shown = self.cycle or self.waits
        lines += [f"  {wait}" for wait in shown[:MOST_SHOWN]]
        if len(shown) > MOST_SHOWN:
            lines.append(f"  … ({len(shown)} in all)")
        lines += [f"  {each}" for each in self.undecided[:MOST_SHOWN]]
        if self.never_end:
            lines.append(f"  {self.never_end} of {self.devices} devices never end{'s' * (self.never_end == 1)}")
        if self.behind:
            lines.append(f"  blocked behind {'them' if len(shown) > 1 else 'it'}: {named(self.behind)}")
        if self.parting:
            lines.append(f"  they diverge at {self.parting}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def fails(self, *, strict: bool) -> bool:
        """Whether a check ends with the status of a deadlock; strict: also where only the run can tell."""
        return self.outcome is Outcome.DEADLOCK or (strict and self.outcome is Outcome.UNKNOWN)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        found["outcome"] = self.outcome.value
        found["location"] = str(self.location) if self.location else None
        found["text"] = self.text
        return found


def named(devices: Sequence[int]) -> str:
    """`device 2` or `devices 0-6, 9`."""
    return f"device{'s' * (len(devices) > 1)} {listed(devices)}"


def listed(devices: Sequence[int]) -> str:
    """`0, 1, 2` or `0-6, 9`; never more than a line."""
    parts: list[list[int]] = []
    for device in sorted(devices):
        if parts and parts[-1][-1] == device - 1:
            parts[-1][1:] = [device]
        else:
            parts.append([device])
    texts = [", ".join(map(str, p)) if len(p) < 2 or p[1] == p[0] + 1 else f"{p[0]}-{p[1]}" for p in parts]
    shown = texts[: 2 * MOST_SHOWN]
    return ", ".join(shown) + (f", … ({len(devices)} in all)" if len(texts) > len(shown) else "")


__all__ = ["Outcome", "Place", "Undecided", "Verdict", "Wait", "listed", "named"]
