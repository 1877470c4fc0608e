"""What is known of a run that could not go on: data, as text, as JSON.

Made by the runtime and by the reference from what they see of their devices (collectives/findings.py), so both say the
same in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from distxla.errors import Location, printable

FORMAT = 1  # of the JSON
HOST = "the host, at the other end of the stream"
MOST_BEFORE, MOST_AFTER = 4, 2  # events of histories that the text shows before the first difference, and from it on
MOST_DIFFERENCES = 4  # that the text tells of
MOST_LINES = 12  # devices in the same instruction that the text tells of one by one


class Doing(StrEnum):
    """What a device does. CAME: it has reached a round or a transfer that another device reached with a different
    instruction. STOPPED: its process is stopped, by a signal or a debugger."""

    WAITS = "waits"
    CAME = "has come"
    COMPUTES = "computes"
    STOPPED = "is stopped"
    NOT_BEGUN = "has not begun"
    ENDED = "has ended"
    FAILED = "has failed"
    LOST = "was lost"
    ABSENT = "takes no part"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that encloses an instruction. iteration: from 1; None where nobody counted."""

    instruction: str
    location: Location | None = None
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of a communicating instruction, or of a kernel where those were recorded, too.

    run: of the program, and round: in its group, channel or stream, both from 1 in each call.  iteration: of the
    innermost loop, 0 outside.  begun, ended, waited (when it began to wait): seconds, 0 is when the report was made
    and all others are before; None where unknown, for `ended` also where it has not ended, and where it never waited.
    """

    instruction: str
    opcode: str
    round: int
    run: int = 1
    iteration: int = 0
    begun: float | None = None
    ended: float | None = None
    waited: float | None = None

    def __str__(self) -> str:
        return f"{self.instruction} ({self.opcode}), round {self.round}"


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device at the end.

    program: its module's name.  instruction, opcode, location: what it waits in or computes, or did last; "" and None
    where that is unknown; computation: where it stands; op_name: what the user's program calls it.  round: of its
    group, or transfer of its channel, or item of its stream, from 1 in each call.  channel: None where there is none.
    group: the members that act together, in group order.  waits_for: devices, all of which must
    come.  host: what of the host it waits for, "" for nothing.  missing: members of the group that have not come.
    loops: outermost first.  events: its last ones, oldest first.
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

    @property
    def place(self) -> str:
        """`all-reduce.7 (step.hlo:12:3)`."""
        return self.instruction if self.location is None else f"{self.instruction} ({self.location})"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two members' histories part. common: the last event that both have, "" for none.  one, other: what each did
    next, "" for nothing; the numbers are places in their `events`, -1 for none.  also, other_also: further devices with
    the history of `device`, and of `other_device`."""

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

    def as_json(self) -> dict[str, Any]:
        """An object of JSON."""
        return {
            "fault": self.spec,
            "happened": self.happened,
            "drawn_by": self.drawn_by,
            "device": self.device,
            "instruction": self.instruction,
            "location": location_json(self.location),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """kind: an error's code. summary: in a sentence or two.  cycles: in each, every device waits for the next and the
    last for the first.  without_end: (device, ended one that it waits for).  behind: devices that wait for those.
    injected: injected faults.  network: for which other hosts a host waits, in sentences."""

    kind: str
    summary: str
    devices: tuple[DeviceReport, ...]
    cycles: tuple[tuple[int, ...], ...] = ()
    without_end: tuple[tuple[int, int], ...] = ()
    behind: tuple[int, ...] = ()
    differences: tuple[Difference, ...] = ()
    hints: tuple[str, ...] = ()
    injected: tuple[Injected, ...] = ()
    network: tuple[str, ...] = ()

    def of(self, device: int) -> DeviceReport | None:
        return next((found for found in self.devices if found.device == device), None)

    @property
    def stuck(self) -> tuple[int, ...]:
        """The devices that can never go on."""
        named = {d for cycle in self.cycles for d in cycle} | {d for d, _ in self.without_end} | {*self.behind}
        return tuple(sorted(named))

    def __str__(self) -> str:
        """The summary and all lines."""
        return f"{self.kind}: {self.summary}\n{self.text()}"

    def __repr__(self) -> str:
        return f"Report({self.kind}: {self.summary})"

    def text(self) -> str:
        """Lines, without the summary."""
        return printable("\n".join(_lines(self)))

    def as_json(self) -> dict[str, Any]:
        """Objects of JSON: numbers, strings, lists, dictionaries."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "summary": self.summary,
            "devices": [_device_json(device) for device in self.devices],
            "cycles": [list(cycle) for cycle in self.cycles],
            "without_end": [list(pair) for pair in self.without_end],
            "behind": list(self.behind),
            "differences": [
                {
                    "devices": [d.device, d.other_device],
                    "common": d.common,
                    "next": [d.one, d.other],
                    "events": [d.one_event, d.other_event],
                    "also": list(d.also),
                    "other_also": list(d.other_also),
                }
                for d in self.differences
            ],
            "hints": list(self.hints),
            "network": list(self.network),
            "injected": [fault.as_json() for fault in self.injected],
        }

    def page(self) -> str:
        """One self-contained HTML page: timelines up to the end, and the graph of who waits for whom."""
        from distxla.collectives.report_page import page

        return page(self)


def named(devices: Iterable[int]) -> str:
    """`device 3`, `devices 0, 2-5`."""
    ranges: list[list[int]] = []
    for device in sorted(set(devices)):
        if ranges and ranges[-1][1] == device - 1:
            ranges[-1][1] = device
        else:
            ranges.append([device, device])
    parts = [str(a) if a == b else f"{a}, {b}" if b == a + 1 and len(ranges) == 1 else f"{a}-{b}" for a, b in ranges]
    return f"device{'' if len(parts) == 1 and ranges[0][0] == ranges[0][1] else 's'} {', '.join(parts)}"


def _did(what: str) -> str:
    return f"came to {what}" if what else "came to nothing more"


def _lines(report: Report) -> list[str]:
    lines: list[str] = []
    alike: dict[tuple[object, ...], list[DeviceReport]] = {}
    for device in report.devices:
        alike.setdefault(_likeness(device), []).append(device)
    for devices in alike.values():
        lines += _device_lines(devices)
    if report.cycles:
        lines.append(f"  cycle{'s' if len(report.cycles) > 1 else ''}: {', '.join(map(chain, report.cycles))}")
    if report.behind:
        lines.append(
            f"  blocked behind {'that' if report.cycles or report.without_end else 'it'}: {named(report.behind)}"
        )
    for difference in report.differences[:MOST_DIFFERENCES]:
        lines += [f"  history: {difference}", *_last_rounds(report, difference)]
    if len(report.differences) > MOST_DIFFERENCES:
        lines.append("  history: others part, too")
    lines += [f"  network: {line}" for line in report.network]
    lines += [f"  hint: {hint}" for hint in report.hints]
    lines += [f"  injected: {fault}" for fault in report.injected]
    return lines


def _last_rounds(report: Report, difference: Difference) -> list[str]:
    """What both devices did last, as names and rounds, with a mark before the first difference."""
    lines = []
    for who, device, first in (
        (difference.who, difference.device, difference.one_event),
        (difference.others, difference.other_device, difference.other_event),
    ):
        found = report.of(device)
        events = () if found is None else found.events
        place = len(events) if first < 0 else first
        shown = [
            f"{'> ' if number == place else ''}{event.instruction} {event.round}"
            for number, event in enumerate(events[: place + MOST_AFTER])
        ]
        left = ["..."] if place > MOST_BEFORE else []
        nothing = ["> nothing"] if first < 0 else []
        lines.append(f"    {who}: {', '.join([*left, *shown[max(0, place - MOST_BEFORE) :], *nothing])}")
    return lines


def chain(cycle: Sequence[int]) -> str:
    """`0 -> 2 -> 1 -> 0`; of a long cycle the ends."""
    if len(cycle) > MOST_LINES:
        parts = [*map(str, cycle[:5]), f"... {len(cycle) - 7} more ...", *map(str, cycle[-2:])]
    else:
        parts = [*map(str, cycle)]
    return " -> ".join([*parts, str(cycle[0])])


def _likeness(device: DeviceReport) -> tuple[object, ...]:
    """Equal for devices that share a line of the text, or a part of it."""
    return (device.doing, device.program, device.instruction, device.location, device.opcode, device.host)


def _device_lines(devices: list[DeviceReport]) -> list[str]:
    """Of devices that are in the same instruction: one line where they wait for the same, else one each."""
    groups: dict[tuple[object, ...], list[DeviceReport]] = {}
    for device in devices:
        groups.setdefault((device.waits_for, device.round, device.group, device.loops), []).append(device)
    lines = [_device_line(group) for group in groups.values()]
    if len(lines) > MOST_LINES:
        left = [d.device for group in [*groups.values()][MOST_LINES - 1 :] for d in group]
        lines = [*lines[: MOST_LINES - 1], f"  and {named(left)} in the same instruction"]
    return lines


_PLURAL = {
    Doing.NOT_BEGUN: "have not begun",
    Doing.ENDED: "have ended",
    Doing.FAILED: "have failed",
    Doing.LOST: "were lost",
    Doing.ABSENT: "take no part",
    Doing.STOPPED: "are stopped",
}


def _device_line(devices: list[DeviceReport]) -> str:
    first, several = devices[0], len(devices) > 1
    who = named(d.device for d in devices)
    if first.doing in (Doing.ENDED, Doing.FAILED, Doing.LOST, Doing.ABSENT, Doing.NOT_BEGUN, Doing.STOPPED):
        last = f" {'after' if first.doing is Doing.ENDED else 'in'} {first.place}" if first.instruction else ""
        doing = _PLURAL[first.doing] if several else first.doing
        return f"  {who} {doing}{last}"
    if first.doing is Doing.COMPUTES:
        where = f" {first.place}" if first.instruction else ""
        return f"  {who} compute{'' if several else 's'}{where}{_loops(first)}"
    details = [first.opcode, *_details(first)]
    if first.doing is Doing.CAME:
        return f"  {who} ha{'ve' if several else 's'} come to {first.place}: {', '.join(filter(None, details))}"
    what = first.host or _whom(first)
    return f"  {who} wait{'' if several else 's'} in {first.place} for {what}: {', '.join(filter(None, details))}"


def _whom(device: DeviceReport) -> str:
    if not device.waits_for:
        return "the rest of its round" if device.group else "its turn"
    return named(device.waits_for)


def _details(device: DeviceReport) -> list[str]:
    found = []
    if device.channel is not None:
        found.append(f"channel {device.channel}")
    if len(device.group) > 1:
        members = device.group if len(device.group) <= 16 else (*device.group[:8],)
        more = f",... {len(device.group)} members" if len(device.group) > 16 else ""
        found.append(f"group {{{','.join(map(str, members))}{more}}}")
    if device.round is not None:
        found.append(f"round {device.round}")
    if device.loops:
        found.append(_loops(device).strip())
    if device.location is not None and device.location.frame:
        found.append(f"from {device.location.frame}" + (f" ({device.op_name})" if device.op_name else ""))
    elif device.op_name:
        found.append(f"from {device.op_name}")
    return found


def _loops(device: DeviceReport) -> str:
    """` in iteration 3 of while.2 in iteration 1 of while.1`."""
    texts = []
    for loop in reversed(device.loops):
        which = f"iteration {loop.iteration} of " if loop.iteration is not None else ""
        texts.append(f" in {which}{loop.instruction}")
    return "".join(texts)


def _device_json(device: DeviceReport) -> dict[str, Any]:
    return {
        "device": device.device,
        "doing": device.doing.value,
        "program": device.program,
        "instruction": device.instruction,
        "opcode": device.opcode,
        "computation": device.computation,
        "location": location_json(device.location),
        "op_name": device.op_name,
        "round": device.round,
        "channel": device.channel,
        "group": list(device.group),
        "waits_for": list(device.waits_for),
        "host": device.host,
        "missing": list(device.missing),
        "loops": [
            {"instruction": loop.instruction, "location": location_json(loop.location), "iteration": loop.iteration}
            for loop in device.loops
        ],
        "events": [
            {
                "instruction": event.instruction,
                "opcode": event.opcode,
                "round": event.round,
                "run": event.run,
                "begun_s": event.begun,
                "ended_s": event.ended,
                "waited_s": event.waited,
                "iteration": event.iteration,
            }
            for event in device.events
        ],
    }


def location_json(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "column": location.column,
        "text": location.text,
        "frame": location.frame,
    }


__all__ = ["DeviceReport", "Difference", "Doing", "Event", "Injected", "Loop", "Report", "chain", "named"]
