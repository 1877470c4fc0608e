"""The events of a program on its devices, in order, as far as they are known before the run."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import Enum
from functools import cached_property

from distxla.ir.instruction import Instruction
from distxla.lazy_dataclass import dataclass, field
from distxla.scheduler.simulation.communication import CommunicationSite


class Act(Enum):
    """The kind of an event."""

    ROUND = "round"  # a round, begun and ended
    START = "start"
    DONE = "done"
    SEND = "send"
    SEND_DONE = "send-done"
    RECV = "recv"
    RECV_DONE = "recv-done"


class Ticket:
    """Names the round or transfer that one execution of a start begins, on every device that executes it. site: of the
    start."""

    __slots__ = ("site",)

    def __init__(self, site: CommunicationSite) -> None:
        self.site = site


Loops = tuple[tuple[Instruction, int | None], ...]  # outermost first, with the iteration, None where not counted
Tickets = Ticket | dict[int, Ticket] | None  # that a value holds; by device where they differ


@dataclass(eq=False, slots=True)
class TraceEvent:
    """One execution of a communicating instruction.

    site: of an END that of the start.  ticket: of the round or transfer that it begins or ends; a mapping by device
    where that differs; None where it is unknown.  by: the instruction itself.  loops: around it.
    """

    act: Act
    site: CommunicationSite
    ticket: Ticket | dict[int, Ticket] | None
    by: CommunicationSite
    loops: Loops = ()


@dataclass(frozen=True)
class Decision:
    """A decision that only the run makes: the trip count of a loop, or the branch that is taken.

    devices with equal `key(device)` take the same decision.  by: the instruction that asks.  cause: the origin of the
    value that decides.  program: whose instructions they are.
    """

    program: int
    term: int
    uniformity: dict[int, Hashable] | None  # None: each device decides alone; empty: all take the same decision
    by: Instruction
    cause: Instruction
    count: int | None = None  # of iterations, where it is known but too large to follow each

    def key(self, device: int) -> Hashable:
        if self.uniformity is None:
            return self.term, "device", device
        return self.term, self.uniformity.get(device) if self.uniformity else None


@dataclass(eq=False)
class Split:
    """Devices of a class take different branches, and which is known. A device that is in no part does nothing.

    by: the instruction that asks.
    """

    by: Instruction
    parts: list[tuple[frozenset[int], Trace]]

    def part_of(self, device: int) -> Trace | None:
        for devices, part in self.parts:
            if device in devices:
                return part
        return None


@dataclass(eq=False)
class Choice:
    """One of several traces, or a loop's body zero or more times."""

    decision: Decision
    branches: list[Trace]
    is_loop: bool = False
    # a loop's state: contexts before and after an iteration
    carried: list[tuple[Tickets, Tickets]] = field(default_factory=list)
    # for each device the ones that communicate with it in here; filled on demand
    circles: dict[int, frozenset[int]] = field(default_factory=dict)

    @cached_property
    def sites(self) -> tuple[CommunicationSite, ...]:
        """Each site in it, once."""
        return tuple({id(e.site): e.site for branch in self.branches for e in events(branch)}.values())


Item = TraceEvent | Split | Choice
Trace = list[Item]


def events(trace: Trace) -> Iterator[TraceEvent]:
    """All events of a trace, on whatever device."""
    for item in trace:
        if isinstance(item, TraceEvent):
            yield item
        else:
            for part in [p for _, p in item.parts] if isinstance(item, Split) else item.branches:
                yield from events(part)


def are_equal(one: Trace, other: Trace) -> bool:
    """Whether devices do the same in both, whichever they take."""
    mine, theirs = list(events(one)), list(events(other))
    if len(mine) != len(theirs) or any(not isinstance(item, TraceEvent) for item in (*one, *other)):
        return False
    numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for a, b in zip(mine, theirs, strict=True):
        if a.act is not b.act or not isinstance(a.ticket, Ticket | None) or not isinstance(b.ticket, Ticket | None):
            return False
        if numbers[0].setdefault(id(a.ticket), len(numbers[0])) != numbers[1].setdefault(id(b.ticket), len(numbers[1])):
            return False
        if a.site.behaviour != b.site.behaviour:
            return False
    return True
