"""The state of each device when no device can go on, in the simulation, as a run would have left it.

It holds the instruction in which each device waits, the devices it waits for, and its history; it has no times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event, Loop
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.scheduler.simulation import traces
from distxla.scheduler.simulation.communication import CommunicationSite, Edge, Rendezvous
from distxla.scheduler.simulation.progress import Mismatch, Progress, Stop
from distxla.scheduler.simulation.traces import Act, Choice, Split, Ticket, Trace

MOST_EVENTS = 32  # of each device, as in diagnoses of runs


class DeviceStates:
    """Of the devices of `modules` at the end of a simulation."""

    def __init__(self, progress: Progress, modules: Mapping[int, Module]) -> None:
        self._progress, self._modules = progress, modules
        self._holders: dict[int, str] = {}
        self._made: dict[tuple[int, int], Event] = {}  # by the simulated event and the number: devices share them
        self._others: dict[tuple[int, int], list[Split | Choice]] = {}  # splits and choices, up to a place of a trace

    def all(self) -> dict[int, DeviceState]:
        """By device."""
        return {device: self._of(device) for device in self._modules}

    def _of(self, device: int) -> DeviceState:
        progress, module = self._progress, self._modules[device]
        stop = progress.stops.get(device)
        came = self._came.get(device)
        if came is not None:
            doing = Doing.WAITS if device == came.devices[0] else Doing.ARRIVED
            site = came.sites[came.devices.index(device)]
            return self._at(device, site, doing, came, () if stop is None else stop.event.loops)
        if stop is not None:
            return self._at(device, stop.event.by, Doing.WAITS, stop, stop.event.loops)
        if device in progress.open_:
            decides = progress.open_[device].choice.decision.by
            return self._computes(device, module, decides)
        if device in progress.lost:
            return self._computes(device, module, progress.lost[device].by.instruction)
        events = self._events(device)
        if not events:
            return DeviceState(device, Doing.ENDED, module.name)
        last = next(self._passed(device)).by
        name, opcode = last.instruction.name, last.instruction.opcode
        return DeviceState(device, Doing.ENDED, module.name, name, opcode, last.location, events=events)

    @cached_property
    def _came(self) -> dict[int, Mismatch]:
        """The first contradiction that each device is part of."""
        found: dict[int, Mismatch] = {}
        for mismatch in self._progress.mismatches:
            for device in mismatch.devices:
                found.setdefault(device, mismatch)
        return found

    def _at(
        self, device: int, site: CommunicationSite, doing: Doing, at: Stop | Mismatch, loops: traces.Loops
    ) -> DeviceState:
        thing, instruction = at.thing, site.instruction
        round_ = None if id(thing) in self._progress.uncounted else at.number + 1
        peers = at.peers if isinstance(at, Stop) else ()
        where = self._computation_of(site.module, instruction)
        iteration = (loops[-1][1] or 0) if loops else 0
        now = Event(instruction.name, instruction.opcode, round_ or 1, iteration=iteration, computation=where)
        return DeviceState(
            device,
            doing,
            site.module.name,
            instruction.name,
            instruction.opcode,
            site.location,
            where,
            round=round_,
            channel=None if isinstance(thing, Rendezvous) else instruction.op.channel,
            group=thing.members if isinstance(thing, Rendezvous) else (),
            waits_for=peers,
            missing=peers if isinstance(thing, Rendezvous) else (),
            loops=tuple(Loop(loop.name, site.module.locate(loop), iteration) for loop, iteration in loops),
            events=(*self._events(device, MOST_EVENTS - 1), now),
            op_name=instruction.metadata.op_name if instruction.metadata else "",
            peer_action=instruction.op.transfer.peer_action,
        )

    def _computes(self, device: int, module: Module, instruction: Instruction) -> DeviceState:
        where, name = self._computation_of(module, instruction), instruction.name
        return DeviceState(
            device, Doing.COMPUTES, module.name, name, instruction.opcode, module.locate(instruction), where
        )

    def _computation_of(self, module: Module, instruction: Instruction) -> str:
        key = id(instruction)
        if key not in self._holders:
            holder = module.holder_of(instruction)
            self._holders[key] = "" if holder is None else holder.name
        return self._holders[key]

    # --- histories

    def _events(self, device: int, most: int = MOST_EVENTS) -> tuple[Event, ...]:
        """The last that a device has executed; nothing where that depends on a decision that only the run makes."""
        if any(self._has_choice(trace, device, end) for trace, end in self._executed(device)):
            return ()
        begun: dict[int, int] = {}  # by rendezvous, how many rounds the device has begun up to the event at hand
        found = list(islice(self._numbered(device, begun), most))
        return tuple(reversed(found))

    def _numbered(self, device: int, begun: dict[int, int]) -> Iterator[Event]:
        """The device's executed events, the last first, with the numbers of rounds and transfers."""
        for event in self._passed(device):
            number = self._number(device, event, begun)
            if number is None:
                continue
            key = (id(event), number)
            if key not in self._made:
                instruction = event.by.instruction
                iteration = (event.loops[-1][1] or 0) if event.loops else 0
                where = self._computation_of(event.by.module, instruction)
                self._made[key] = Event(
                    instruction.name, instruction.opcode, number, iteration=iteration, computation=where
                )
            yield self._made[key]

    def _number(self, device: int, event: traces.TraceEvent, begun: dict[int, int]) -> int | None:
        """From 1; None where the device takes no part."""
        counters = self._progress.counters
        ticket = event.ticket.get(device) if isinstance(event.ticket, dict) else event.ticket
        thing: Rendezvous | Edge | None = event.site.rendezvous_by_device[self._progress.reading].get(device)
        if event.act in (Act.ROUND, Act.START):
            if thing is None:
                return None
            number = begun.get(id(thing))
            if number is None:
                assert isinstance(thing, Rendezvous)
                number = counters.of(thing).come.get(device, 0)
                if self._progress.has_begun(device) and self._stands_in(device, thing):
                    number -= 1  # of the current one
            begun[id(thing)] = number - 1
            return number
        known: tuple[Any, int] | None = counters.begun(device, ticket) if isinstance(ticket, Ticket) else None
        return None if known is None else known[1] + 1

    def _stands_in(self, device: int, thing: Rendezvous) -> bool:
        stop = self._progress.stops.get(device)
        return stop is not None and stop.thing is thing and stop.event.act is not Act.DONE

    def _executed(self, device: int) -> list[tuple[Trace, int]]:
        """The traces that a device is in, or has been through, and how much of each it has executed; the last first."""
        trace = self._progress.traces[device]
        places = self._progress.places[device] or [[trace, len(trace)]]
        # the current event of an enclosing trace has not ended: only the earlier ones count
        return [(trace, end - (depth > 0)) for depth, (trace, end) in enumerate(reversed(places))]

    def _passed(self, device: int) -> Iterator[traces.TraceEvent]:
        """The device's executed events, the last first."""
        for trace, end in self._executed(device):
            yield from _backwards(trace, device, end)

    def _has_choice(self, trace: Trace, device: int, end: int) -> bool:
        key = (id(trace), end)
        if key not in self._others:
            self._others[key] = [item for item in islice(trace, end) if not isinstance(item, traces.TraceEvent)]
        for item in self._others[key]:
            part = item.part_of(device) if isinstance(item, Split) else None
            if isinstance(item, Choice) or (part is not None and self._has_choice(part, device, len(part))):
                return True
        return False


def _backwards(trace: Trace, device: int, end: int) -> Iterator[traces.TraceEvent]:
    """A device's events of a trace without choices, before a position, the last first."""
    for number in range(end, 0, -1):
        item = trace[number - 1]
        if isinstance(item, traces.TraceEvent):
            yield item
        elif isinstance(item, Split) and (part := item.part_of(device)) is not None:
            yield from _backwards(part, device, len(part))


__all__ = ["DeviceStates"]
