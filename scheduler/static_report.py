"""A report of a run that has not begun: what `check` knows of its devices, in the form of a report of a run.

It holds who waits in which instruction for whom, and in what order each device came there; it knows no times.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from distxla.collectives import findings
from distxla.collectives.report import DeviceReport, Doing, Event, Report
from distxla.errors import DeadlockError, Location
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.scheduler.simulation.communication import Communication, Meeting, Site
from distxla.scheduler.simulation.progress import Mismatch, Progress, Stop
from distxla.scheduler.simulation.standstill import behind, never_go_on, verdict_on
from distxla.scheduler.simulation.traces import Choice, Split, Trace
from distxla.scheduler.verdict import Outcome, Verdict

MOST_UNDECIDED = 3  # that a summary names
MOST_EVENTS = 32  # of each device, as in reports of runs


def static_report(communication: Communication, progress: Progress | None, verdict: Verdict) -> Report:
    """progress: where the devices stand when none of them can go on; None where they were not followed so far."""
    kind = "warning" if verdict.outcome is Outcome.UNKNOWN else "mismatch" if verdict.is_mismatch else "deadlock"
    modules = {device: module for devices, module in communication.programs for device in devices}
    devices = {} if progress is None else {device: _recorded(progress, device, modules[device]) for device in modules}
    graph = None
    if progress is not None and verdict.outcome is Outcome.DEADLOCK and not progress.mismatches:
        graph = verdict_on(progress, never_go_on(progress))
    pair = None if progress is None or not progress.mismatches else progress.mismatches[0].devices
    summary = ": ".join([verdict.summary, "; ".join(map(str, verdict.undecided[:MOST_UNDECIDED]))]).removesuffix(": ")
    found = findings.report(kind, summary, devices, graph, modules, pair)
    return found if found.hints or verdict.hint is None else replace(found, hints=(verdict.hint,))


def refusal_report(error: DeadlockError) -> Report:
    """Of a run that is refused since a program waits in it for what no program does: no device has been followed."""
    hints = tuple(str(note) for note in getattr(error, "__notes__", ()))
    is_placed = error.location is None or str(error.location) in error.message
    return Report(error.code, error.message if is_placed else f"{error.message} ({error.location})", (), hints=hints)


def device_report(progress: Progress, device: int, module: Module) -> DeviceReport:
    """What a device does when nobody can go on, without how it came there."""
    stop = progress.stops.get(device)
    came = next((m for m in progress.mismatches if device in m.devices), None)
    if came is not None:
        site = came.sites[came.devices.index(device)]
        doing = Doing.WAITS if device == came.devices[0] else Doing.CAME
        return _at(progress, device, site, doing, came)
    if stop is not None:
        return _at(progress, device, stop.event.by, Doing.WAITS, stop, stop.peers)
    if device in progress.open_:
        decides = progress.open_[device].choice.decision.by
        return _computes(device, module, decides, module.locate(decides))
    if device in progress.lost:
        site = progress.lost[device].by
        return _computes(device, module, site.instruction, site.location)
    return DeviceReport(device, Doing.ENDED, module.name)


def _recorded(progress: Progress, device: int, module: Module) -> DeviceReport:
    """The same with what it has executed, and of one that has ended with the last instruction."""
    found = device_report(progress, device, module)
    passed = _passed(progress, device)
    events = [event for _, event in passed]
    if found.doing is Doing.ENDED and passed:
        at = passed[-1][0]
        found = replace(found, instruction=at.instruction.name, opcode=at.instruction.opcode, location=at.location)
    elif found.doing in (Doing.WAITS, Doing.CAME):
        events.append(Event(found.instruction, found.opcode, found.round or 1))
    return replace(found, events=tuple(events[-MOST_EVENTS:]))


def _at(
    progress: Progress,
    device: int,
    site: Site,
    doing: Doing,
    at: Stop | Mismatch,
    peers: Sequence[int] = (),
) -> DeviceReport:
    thing, number = at.thing, at.number
    round_ = None if id(thing) in progress.uncounted else number + 1
    return DeviceReport(
        device,
        doing,
        site.module.name,
        site.instruction.name,
        site.instruction.opcode,
        site.location,
        _computation_of(site.module, site.instruction),
        round=round_,
        channel=None if isinstance(thing, Meeting) else thing.channel,
        group=thing.members if isinstance(thing, Meeting) else (),
        waits_for=tuple(peers),
        missing=tuple(peers) if isinstance(thing, Meeting) else (),
    )


def _computes(device: int, module: Module, instruction: Instruction, location: Location | None) -> DeviceReport:
    where = _computation_of(module, instruction)
    return DeviceReport(device, Doing.COMPUTES, module.name, instruction.name, instruction.opcode, location, where)


def _computation_of(module: Module, instruction: Instruction) -> str:
    holder = module.holder_of(instruction)
    return "" if holder is None else holder.name


def _passed(progress: Progress, device: int) -> list[tuple[Site, Event]]:
    """The last that a device has executed; nothing where that depends on what only the run decides."""
    traces = [trace[:position] for trace, position in progress.places[device]] or [progress.traces[device]]
    if any(_has_choice(trace, device) for trace in traces):
        return []
    executed: Counter[tuple[object, ...]] = Counter()
    found: deque[tuple[Site, Event]] = deque(maxlen=MOST_EVENTS)
    for event in behind(progress, device):
        ticket = event.ticket.get(device) if isinstance(event.ticket, dict) else event.ticket
        begun = event.site if ticket is None else ticket.site  # what a done ends
        thing = begun.meetings[progress.reading].get(device) or begun.ways.get(device, (None,))[0]
        if thing is None:
            continue
        key = (event.act, id(thing))
        executed[key] += 1
        instruction = event.by.instruction
        found.append((event.by, Event(instruction.name, instruction.opcode, executed[key])))
    return list(found)


def _has_choice(trace: Trace, device: int) -> bool:
    for item in trace:
        if isinstance(item, Choice):
            return True
        if isinstance(item, Split) and (part := item.part_of(device)) is not None and _has_choice(part, device):
            return True
    return False


__all__ = ["device_report", "refusal_report", "static_report"]
