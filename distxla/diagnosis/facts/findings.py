"""Devices that can't go on, as plain data: `Findings`, which reports show and `Diagnosis` offers."""

from __future__ import annotations

import warnings

from distxla.diagnosis.facts.blocked import DeviceState, Doing, Injected, Need, Place
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.wording import named

UNDECIDED = "undecided"  # the kind of a verdict before the run that only the run can give
UNMATCHED = "unmatched"  # the kind of a refusal: a send or a recv has no counterpart in any program


@dataclass(frozen=True, slots=True)
class Divergence:
    """common: the last event that both have, "" for none.  one, other: the next one of each, "" for none; the numbers
    are places in their `events`, -1 for none.  also, other_also: further devices with the history of `device`, and of
    `other_device`."""

    device: int
    other_device: int
    common: str
    one: str
    other: str
    one_event: int = -1
    other_event: int = -1
    also: tuple[int, ...] = ()
    other_also: tuple[int, ...] = ()

    @property
    def who(self) -> str:
        """`device` and all that did the same."""
        return named((self.device, *self.also))

    @property
    def others(self) -> str:
        """`other_device` and all that did the same."""
        return named((self.other_device, *self.other_also))

    def __str__(self) -> str:
        since = f"after {self.common}" if self.common else "to begin with"
        return (
            f"{since} {self.who} {_did(self.one)}, {self.others} {_did(self.other)}"
            if self.one or self.other
            else f"{self.who} and {self.others} have done the same up to {self.common}"
        )


def _did(what: str) -> str:
    return f"reached {what}" if what else "reached nothing more"


@dataclass(frozen=True, slots=True)
class Blocked:
    """A device that can never go on, and what it needs of others.

    program: its module's name.  computation: that of the instruction.  round: of its group, or transfer of its
    channel, from 1 in each call; None where it depends on the run, or where it waits for the host.
    """

    device: int
    place: Place
    program: str
    computation: str
    round: int | None
    channel: int | None
    group: tuple[int, ...]
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class Undecided:
    """A decision that only the run makes, and that matters. by: the instruction that asks.  cause: its origin."""

    devices: tuple[int, ...]
    by: Place
    cause: Place
    why: str

    def __str__(self) -> str:
        cause = "" if self.cause == self.by else f" is decided by {self.cause}"
        return f"{self.by}{cause}: {self.why} ({named(self.devices)})"


@dataclass(frozen=True, slots=True)
class Findings:
    """kind: deadlock, mismatch, unmatched, undecided, or the code of another error of a run.  summary: in a sentence or
    two.  location: of the instruction to look at first.  channel: on which its device waits, if on one.

    devices: the state of each.  cycles: in each, every device waits for the next and the last for the first.
    without_end: (device, ended one that it waits for).  behind: devices that wait for those.  pair: two devices that
    reached one round, or one transfer, with instructions that do not belong together.
    divergences: where histories diverge.  diverge_at: the branch or loop in which the first two do.

    Of a run, is_live: injected faults; network, in sentences, the other hosts that a host waits for.
    Of several JAX processes, processes: the state of each; process_differences: between two of them, what a user knows
    first. Such findings have no devices.
    Before a run: undecided, the decisions that only the run makes; notes, further knowledge, in sentences.
    """

    kind: str
    summary: str
    devices: tuple[DeviceState, ...] = ()
    location: Location | None = None
    channel: int | None = None
    cycles: tuple[tuple[int, ...], ...] = ()
    without_end: tuple[tuple[int, int], ...] = ()
    behind: tuple[int, ...] = ()
    pair: tuple[int, int] | None = None
    divergences: tuple[Divergence, ...] = ()
    diverge_at: Place | None = None
    hints: tuple[str, ...] = ()
    is_live: bool = True
    injected: tuple[Injected, ...] = ()
    network: tuple[str, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    notes: tuple[str, ...] = ()
    processes: tuple[ProcessState, ...] = ()
    process_differences: tuple[Difference, ...] = ()

    @property
    def differences(self) -> tuple[Divergence, ...]:
        """The old name of `divergences`."""
        warnings.warn("differences is now divergences", DeprecationWarning, stacklevel=2)
        return self.divergences

    def of(self, device: int) -> DeviceState | None:
        return next((found for found in self.devices if found.device == device), None)

    @property
    def stuck(self) -> tuple[int, ...]:
        """The devices that can never go on, of those that wait for others."""
        found = {d for cycle in self.cycles for d in cycle} | {d for d, _ in self.without_end} | {*self.behind}
        return tuple(sorted(found))

    @property
    def cycle(self) -> tuple[int, ...]:
        """The shortest cycle, of equally short ones that with the smallest device; empty if there is none."""
        return min(self.cycles, key=len, default=())

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """The stuck devices; of a mismatch in one round, or one transfer, the two with different instructions."""
        who = self.stuck if self.pair is None else self.pair
        return tuple(self._blocked(state) for device in sorted(who) if (state := self.of(device)) is not None)

    def _blocked(self, state: DeviceState) -> Blocked:
        needs = state.needs
        if self.pair is not None and state.device in self.pair:
            other = self.pair[state.device == self.pair[0]]
            needs = (Need(other, "come with the same" if state.group else "transfer a value of the same type"),)
        return Blocked(
            state.device,
            state.place,
            state.program,
            state.computation,
            state.round,
            state.channel,
            state.group,
            needs,
        )

    @property
    def headline(self) -> str:
        """`deadlock: device 0 waits …`."""
        label = {UNDECIDED: "warning", UNMATCHED: "deadlock"}.get(self.kind, self.kind)
        return f"{label}: {self.summary}"


def never_end(findings: Findings) -> str:
    """`2 of 8 devices can never end`; "" where that is not known."""
    total = sum(device.doing is not Doing.ABSENT for device in findings.devices)
    return f"{len(findings.stuck)} of {total} devices can never end" if findings.stuck else ""


__all__ = ["UNDECIDED", "UNMATCHED", "Blocked", "Divergence", "Findings", "Undecided", "never_end"]
