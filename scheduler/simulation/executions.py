"""How often devices execute something that all of them have to execute equally often, in words."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass
from distxla.scheduler.simulation.communication import CommunicationSite, Edge, Rendezvous
from distxla.scheduler.simulation.progress import Progress
from distxla.scheduler.simulation.traces import Act, Split, Trace, TraceEvent, events
from distxla.wording import listed


@dataclass(frozen=True)
class _Count:
    """times: that a device enters a round, or has a transfer. last: the site of the last time."""

    times: int
    last: CommunicationSite


def compared(progress: Progress, thing: Rendezvous | Edge, device: int, peer: int, *, places: bool) -> str | None:
    """How often a device and its peer enter rounds, or have transfers. None where only the run tells, or where the peer
    has none or as many. places: also in which instruction for the last time."""
    mine, theirs = (_count(progress, thing, d) for d in (device, peer))
    if mine is None or theirs is None or theirs.times >= mine.times:
        return None
    if isinstance(thing, Rendezvous):
        few = f"device {peer} enters {_rounds(theirs.times)} of devices {listed(thing.members)}"
        many = f"device {device} enters {mine.times}"
    else:
        verbs = [("sends" if d == thing.source else "receives") for d in (peer, device)]
        few = f"device {peer} {verbs[0]} {_times(theirs.times)} on {thing.ids}"
        many = f"device {device} {verbs[1]} {_times(mine.times)}"
    return f"{few}, last in {_named(theirs)}, {many}, last in {_named(mine)}" if places else f"{few}, {many}"


def _count(progress: Progress, thing: Rendezvous | Edge, device: int) -> _Count | None:
    """None where only the run tells, or it is never."""
    times, last = 0, None
    pending: list[Trace] = [progress.traces[device]]
    found: list[TraceEvent] = []
    while pending:
        trace = pending.pop()
        for item in trace:
            if isinstance(item, TraceEvent):
                if _is_one(progress, item, thing, device):
                    found.append(item)
            elif isinstance(item, Split):
                part = item.part_of(device)
                if part:
                    pending.append(part)
            elif any(_is_one(progress, event, thing, device) for branch in item.branches for event in events(branch)):
                return None
    for event in found:
        if not isinstance(thing, Rendezvous) and event.site.edges[device][1] is not None:
            return None  # which executions transfer its bounds say
        times, last = times + 1, event.site
    return None if last is None else _Count(times, last)


def _is_one(progress: Progress, event: TraceEvent, thing: Rendezvous | Edge, device: int) -> bool:
    if isinstance(thing, Rendezvous):
        meets = event.act in (Act.ROUND, Act.START)
        return meets and event.site.rendezvous_by_device[progress.reading].get(device) is thing
    return event.act in (Act.SEND, Act.RECV) and event.site.leads(device, thing)


def _named(count: _Count) -> str:
    """The instruction, and the loop around it."""
    site = count.last
    for computation in site.module.computations:
        for instruction in computation:
            body = instruction.op.loop_body
            if body is not None and site.instruction in site.module[body].instructions:
                where = site.module.locate(instruction)
                return f"{site} in loop {instruction.name}" + (f" ({where})" if where else "")
    return str(site)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
