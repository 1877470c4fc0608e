"""A device's state at the end of a run that can't go on: where it waits, what it needs of which device, and its
history.

The static check makes these from its simulation, the reference from its threads, the cluster from its devices' records.
"""

from __future__ import annotations

from enum import StrEnum

from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.wording import round_called

HOST = "the host, at the other end of the stream"
HOST_CALL = "the function of the driver that it has called"


class Doing(StrEnum):
    """A device's activity. ARRIVED: it has reached a round or a transfer that another device reached with a different
    instruction. STOPPED: its process is stopped, by a signal or a debugger."""

    WAITS = "waits"
    ARRIVED = "has come"
    COMPUTES = "computes"
    STOPPED = "is stopped"
    NOT_BEGUN = "has not begun"
    ENDED = "has ended"
    FAILED = "has failed"
    LOST = "was lost"
    ABSENT = "takes no part"


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction of a program. op_name: its name in the user's program."""

    instruction: str
    opcode: str
    location: Location | None = None
    op_name: str = ""

    def __str__(self) -> str:
        """`all-reduce.7 (step.hlo:12:3)`."""
        return self.instruction if self.location is None else f"{self.instruction} ({self.location})"

    @property
    def frame(self) -> str | None:
        """The line of the user's own program, where metadata tell it."""
        return None if self.location is None else self.location.frame


@dataclass(frozen=True, slots=True)
class Need:
    """A device, and what it has to do so that a blocked one can go on: `send on channel 1`."""

    device: int
    what: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that encloses an instruction. iteration: from 1; None where it is not counted."""

    instruction: str
    location: Location | None = None
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of a communicating instruction, or of a kernel where those were recorded, too.

    run: of the program, and round: in its group, channel or stream, both from 1 in each call.  iteration: of the
    innermost loop, 0 outside.  begun, ended, waited (when it began to wait): seconds, 0 is when the report was made
    and all others are before; None where unknown, for `ended` also where it has not ended, and where it never waited.
    computation: that of the instruction.
    """

    instruction: str
    opcode: str
    round: int
    run: int = 1
    iteration: int = 0
    begun: float | None = None
    ended: float | None = None
    waited: float | None = None
    computation: str = ""

    def __str__(self) -> str:
        return f"{self.instruction} ({self.opcode}), round {self.round}"


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device at the end.

    program: its module's name.  instruction, opcode, location: the one in which it waits or computes, or the last one;
    "" and None where that is unknown; computation: that of the instruction; op_name: its name in the user's program.
    round: of its group, or transfer of its channel, or item of its stream, from 1 in each call.  channel: None where
    there is none.  group: the members that act together, in group order.  waits_for: devices, all of which must
    come.  host: the part of the host it waits for, "" for none.  missing: members of the group that have not arrived.
    loops: outermost first.  events: its last ones, oldest first.  peer_action: outside of groups, the action of the
    devices in waits_for that ends the wait (`TransferEnd.peer_action`).
    """

    device: int
    doing: Doing
    program: str = ""
    instruction: str = ""
    opcode: str = ""
    location: Location | None = None
    computation: str = ""
    round: int | None = None
    channel: int | None = None
    group: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()
    host: str = ""
    missing: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()
    events: tuple[Event, ...] = ()
    op_name: str = ""
    peer_action: str = "come"

    @property
    def place(self) -> Place:
        """The instruction in which it is; its text is "" where that is unknown."""
        return Place(self.instruction, self.opcode, self.location, self.op_name)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The events that other devices have to reach, every one of them, so that it can go on."""
        what = self._needed()
        return tuple(Need(device, what) for device in self.waits_for)

    def _needed(self) -> str:
        if self.group:
            return f"enter {round_called(self.group, self.round)}"
        on = "" if self.channel is None else f" on channel {self.channel}"
        return f"{self.peer_action}{on}"


@dataclass(frozen=True, slots=True)
class Injected:
    """An injected fault. spec: its text.  happened: None if that is unknown.  drawn_by: spec of the random fault that
    drew it, "" for none.  device, instruction, location: where it is to happen, if stated."""

    spec: str
    happened: bool | None
    drawn_by: str = ""
    device: int | None = None
    instruction: str = ""
    location: Location | None = None

    def __str__(self) -> str:
        state = {True: "happened", False: "not reached", None: "not known whether it happened"}[self.happened]
        return f"{self.spec}{'' if self.location is None else f' ({self.location})'}: {state}"
