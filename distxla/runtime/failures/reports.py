"""A diagnosis of devices when a call could not go on, from their records, and the error that carries it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from distxla.collectives import recorder
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.collectives.protocols.channel import DIRECTORY_KEY
from distxla.collectives.signature import differences
from distxla.diagnosis.diagnose import deadlock_error, diagnose
from distxla.diagnosis.facts.blocked import HOST, HOST_CALL, DeviceState, Doing, Event, Loop
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DeadlockError, DistxlaError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.program.abi import Status
from distxla.program.artifact import CommunicatorSpec, CompiledProgram, Site
from distxla.runtime.failures.deadlocks import Stuck
from distxla.runtime.hosts.process_watch import current_site, current_step, has_begun
from distxla.runtime.values.host import Lost, Records

EVENTS = 32  # of each device that a report keeps


@dataclass(frozen=True)
class PostMortemSnapshot:
    """All that is known at the end of a call.

    running: the devices of the call.  programs, modules: by number.  missing: of a group's round, given device,
    program, site and round.  lost: devices whose processes have ended.  now: ns of CLOCK_MONOTONIC, when the records
    were read.  ahead: by device, how many ns its host's clock is ahead of this one, 0 where it isn't named.
    """

    records: Records
    running: Sequence[int]
    programs: Mapping[int, CompiledProgram]
    modules: Mapping[int, Module]
    missing: Callable[[int, CompiledProgram, int, int], tuple[int, ...]]
    lost: Mapping[int, Lost]
    now: int
    ahead: Mapping[int, int]

    def diagnosis(
        self, error: DistxlaError, stuck: Stuck | None = None, devices: Mapping[int, DeviceState] | None = None
    ) -> Diagnosis:
        """devices: an earlier result of `devices`."""
        found = self.devices(stuck) if devices is None else devices
        deadlock = None if stuck is None else stuck.deadlock
        return diagnose(error, found, deadlock, self._modules_of(), logical=self._logical())

    def devices(self, stuck: Stuck | None = None) -> dict[int, DeviceState]:
        """The devices of the call, and others that some wait for."""
        wanted = {over for _, over in stuck.deadlock.without_end} if stuck is not None else set()
        return {device: self._device(device) for device in sorted({*self.running, *wanted})}

    def _modules_of(self) -> dict[int, Module]:
        numbers = {device: self.records.record(device, control_words.R_COMMAND_PROGRAM) for device in self.running}
        return {device: self.modules[number] for device, number in numbers.items() if number in self.modules}

    def _logical(self) -> dict[int, int]:
        """The ids that devices have in programs which number them in their own way."""
        found = {}
        for device in self.running:
            program = self.programs.get(self.records.record(device, control_words.R_COMMAND_PROGRAM))
            if program is not None and program.assignment is not None:
                found[device] = program.logical(device)
        return found

    def _device(self, device: int) -> DeviceState:
        number = self.records.record(device, control_words.R_COMMAND_PROGRAM)
        program = self.programs.get(number)
        if device not in self.running or program is None:
            return DeviceState(device, Doing.ABSENT)
        events = tuple(self._events(device))
        doing = self._doing(device, events)
        if doing is Doing.NOT_BEGUN:  # its record is still that of the call before
            return DeviceState(device, doing, program.name)
        if doing in (Doing.LOST, Doing.COMPUTES, Doing.STOPPED):
            step = current_step(self.records, device, self.programs, self.modules)
            name, location = step if step is not None else ("", None)
            return DeviceState(device, doing, program.name, name, location=location, events=events)
        site = current_site(self.records, device, self.programs)
        if site is None:
            return DeviceState(device, doing, program.name, events=events)
        if doing in (Doing.ENDED, Doing.FAILED):
            came = any(event.instruction == site.instruction for event in events)
            place = (site.instruction, site.opcode, site.location) if came else ("", "", None)
            return DeviceState(device, doing, program.name, *place, events=events)
        return self._waiting(device, doing, program, site, events)

    def _doing(self, device: int, events: Sequence[Event]) -> Doing:
        if device in self.lost:
            return Doing.LOST
        if not has_begun(self.records, device):
            return Doing.NOT_BEGUN
        if self.records.record(device, control_words.R_IS_STOPPED):
            return Doing.STOPPED
        status = self.records.record(device, control_words.R_STATUS)
        if self.records.record(device, control_words.R_COMMAND_KIND) != control_words.CommandKind.RUN:
            if status == Status.ABORTED:
                return Doing.WAITS if events and events[-1].ended is None else Doing.COMPUTES
            if status == Status.MISMATCH:
                return Doing.ARRIVED
            return Doing.ENDED if status == Status.OK else Doing.FAILED
        if self.records.record(device, control_words.R_STATE) == control_words.ReplicaState.WAITING:
            return Doing.WAITS
        is_within = bool(events) and events[-1].ended is None
        return Doing.ARRIVED if is_within and self._is_refused(device) else Doing.COMPUTES

    def _is_refused(self, device: int) -> bool:
        """Whether another device has found that this one, which does not sleep yet, has another instruction."""
        return any(
            self.records.record(other, control_words.R_STATUS) == Status.MISMATCH
            and self.records.record(other, control_words.R_MISMATCH_DEVICE) == device
            for other in self.running
            if has_begun(self.records, other)
        )

    def _waiting(
        self, device: int, doing: Doing, program: CompiledProgram, site: Site, events: tuple[Event, ...]
    ) -> DeviceState:
        """A device that waits, or that has reached a round or transfer with another instruction than another device."""
        waits_for = self.records.record(device, control_words.R_WAITS_FOR)
        round_ = self.records.record_long(device, control_words.R_ROUND)
        others: tuple[int, ...] = ()
        host = ""
        spec = program.communicators[site.communicator] if site.communicator >= 0 else None
        is_host_call = spec is not None and spec.stream is not None and spec.stream.is_host_call
        if doing is not Doing.WAITS:
            pass
        elif waits_for < self.records.devices:
            others = (waits_for,)
        elif waits_for == control_words.UNSIGNED + control_words.WAITS_FOR_HOST:
            host = HOST_CALL if is_host_call else HOST
        else:
            others = self.missing(device, program, site.index, round_)
        group = group_of(spec, device)
        module = self.modules.get(self.records.record(device, control_words.R_PROGRAM))
        instruction = instruction_of(site, module)
        holder = None if module is None or instruction is None else module.holder_of(instruction)
        number = round_ - self.records.record_long(device, control_words.R_BEFORE) + _first(spec)
        return DeviceState(
            device,
            doing,
            program.name,
            site.instruction,
            "custom-call" if is_host_call else site.opcode,
            site.location,
            site.computation if holder is None else holder.name,  # calls may have been inlined
            number or None,
            None if is_host_call else instruction.op.channel if instruction is not None else _channel(spec),
            group,
            others,
            host=host,
            missing=others if group else (),
            loops=self._loops(device, site),
            events=events,
            op_name=instruction.metadata.op_name if instruction is not None and instruction.metadata else "",
            peer_action=site.peer_action,
        )

    def _loops(self, device: int, site: Site) -> tuple[Loop, ...]:
        counts = recorder.iterations(self.records, device)
        padded = (*counts, *(0,) * len(site.loops))
        return tuple(
            Loop(loop.instruction, loop.location, count or None)
            for loop, count in zip(site.loops, padded, strict=False)
        )

    def _events(self, device: int) -> Iterator[Event]:
        """The last communicating instructions of a device, but for those in which it had no part."""
        record = partial(self.records.record, device)
        program = self.programs.get(record(control_words.R_COMMAND_PROGRAM))
        if program is None or not has_begun(self.records, device):
            return
        before, ahead = record(control_words.R_RUNS_BEFORE), self.ahead.get(device, 0)
        kept = []
        for event in self.recorded(device, before):
            if event.site is not None and event.site < len(program.sites) and event.run > before:
                site, shifted = program.sites[event.site], event.shifted(-ahead)
                first = _first(program.communicators[site.communicator] if site.communicator >= 0 else None)
                if shifted.round + first:  # else it has no part in it
                    kept.append((shifted, shifted.round + first, site))
        for event, round_, site in kept[-EVENTS:]:
            yield Event(
                site.instruction,
                site.opcode,
                round_,
                event.run - before,
                event.iteration,
                _seconds(event.begun, self.now),
                _seconds(event.ended, self.now),
                _seconds(event.waited, self.now),
                site.computation,
            )

    def recorded(self, device: int, before: int) -> list[recorder.RecordedEvent]:
        """The last events of a device, oldest first: all behind run `before` that are kept, or some with EVENTS sites
        among them. Those of many devices take long to read."""
        row, ring = self.records.row(device), self.records.ring(device)
        last = ring[-EVENTS * event_words.EVENT_BYTES :]
        if not row or len(last) == len(ring):
            return recorder.events(self.records, device)
        found = list(recorder.decode(last, row, device))
        is_enough = sum(event.site is not None for event in found) >= EVENTS or (found and found[0].run <= before)
        return found if is_enough else recorder.events(self.records, device)


def _seconds(moment: float | None, now: int) -> float | None:
    return None if moment is None else round((moment - now) / 1e9, 6)


def _first(spec: CommunicatorSpec | None) -> int:
    """Added to a record's round, so that the first one is 1: items of streams are counted from 0."""
    return 1 if spec is not None and spec.stream is not None else 0


def group_of(spec: CommunicatorSpec | None, device: int) -> tuple[int, ...]:
    """The members of the rounds of a communicator, in group order; none where it has no rounds."""
    if spec is None or spec.stream is not None or spec.channel is not None:
        return ()
    if spec.key == DIRECTORY_KEY:  # the directory that the dones of channels share is no group
        return ()
    group = next((group for group in spec.groups if device in group), ())
    return group if len(group) > 1 else ()


def instruction_of(site: Site, module: Module | None) -> Instruction | None:
    """A site's instruction in the module that was compiled, None where that is not known."""
    if module is None:
        return None
    found = module.by_name.get(site.computation)
    if found is not None and site.instruction in found.by_name:
        return found[site.instruction]
    return next((c[site.instruction] for c in module.computations if site.instruction in c.by_name), None)


def _channel(spec: CommunicatorSpec | None) -> int | None:
    return spec.channel.channel if spec is not None and spec.channel is not None else None


def _begin_of(program: CompiledProgram, index: int, module: Module | None) -> Site:
    """The site that reached the round in which another one waits: of an asynchronous pair the start's, as far as the
    module is known."""
    site = program.sites[index]
    instruction = instruction_of(site, module)
    within = None if module is None or instruction is None else module.holder_of(instruction)
    while (
        within is not None and instruction is not None and instruction.op.start_done.completes and instruction.operands
    ):
        instruction = within[instruction.operands[0]]
    name = site.instruction if instruction is None else instruction.name
    candidates = [other for other in program.sites if other.instruction == name]
    return next(
        (other for other in candidates if other.computation == site.computation), candidates[0] if candidates else site
    )


def stuck_error(stuck: Stuck, snapshot: PostMortemSnapshot) -> DeadlockError:
    """The error of devices that can never go on, with its diagnosis."""

    def differing(*both: int) -> str:
        places = [blocked for device in both if (blocked := stuck.blocked.get(device)) is not None]
        sites = [
            _begin_of(snapshot.programs[blocked.program], blocked.site, snapshot.modules.get(blocked.program))
            for blocked in places
        ]
        return differences(*(site.facets for site in sites)) if len(sites) == 2 else ""

    devices = snapshot.devices(stuck)
    error = deadlock_error(stuck.deadlock, devices, differing)
    error.diagnosis = snapshot.diagnosis(error, stuck, devices)
    return error


__all__ = ["PostMortemSnapshot", "group_of", "instruction_of", "stuck_error"]
