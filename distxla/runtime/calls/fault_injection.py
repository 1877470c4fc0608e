"""The faults of a cluster: the points that its programs need, the devices that carry them out, and their outcomes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from distxla.collectives.protocols import control_block as control_words
from distxla.diagnosis.facts.blocked import Injected
from distxla.errors import DistxlaError, ReplicaLostError, StreamEndError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.lazy_dataclass import dataclass, replace
from distxla.location import Location
from distxla.program.artifact import ANY_POINT, CompiledProgram
from distxla.runtime.injection.drawing import draw, draw_between_hosts
from distxla.runtime.injection.faults import BETWEEN_HOSTS, IN_A_PROGRAM, Fault, Kind
from distxla.runtime.injection.grammar import MOST_FAULTS, parse_faults, refuse
from distxla.runtime.values.host import Records
from distxla.similar_words import nearest

if TYPE_CHECKING:
    from distxla.collectives.transports.network_fault import NetworkFault
    from distxla.runtime.arrays.executable import Executable
    from distxla.runtime.streams.streams import ClusterStreams

LOGGER = logging.getLogger("distxla")


@dataclass(frozen=True)
class Aftermath:
    """State after a call. records: of all devices.  lost: devices whose processes have ended.  lost_hosts: hosts that
    are lost as a whole.  messages: effects on messages between hosts, by number of the fault."""

    records: Records
    lost: frozenset[int]
    lost_hosts: frozenset[int]
    messages: Mapping[int, str]


class Injection:
    """Faults of one cluster. Each happens once, except SLOW.

    specs: see docs/guide/fault_injection.md.  devices: their number in the run.  origin: the file name in errors.
    Raises ArgumentError.
    """

    def __init__(self, specs: Sequence[str], devices: int, origin: str = "inject") -> None:
        self._asked = parse_faults(specs, devices, origin)
        self._undrawn = [fault for fault in self._asked if fault.kind is Kind.RANDOM]
        self._faults = [(fault, "") for fault in self._asked if fault.kind is not Kind.RANDOM]
        self._hosts: list[range] = []
        self._places: dict[str, Location | None] = {}
        self._names: dict[str, None] = {}  # of instructions of all modules so far
        self._between: list[Fault] = []
        self._armed = False
        self._aftermath: Aftermath | None = None
        self._feed_ended: Callable[[int], bool] = lambda device: False

    # --- compiling

    def points(self, module: Module, devices: Iterable[int]) -> tuple[str, ...]:
        """The points that a program of these devices needs: names of instructions, or ANY_POINT.

        ArgumentError for an instruction that is neither in this module nor in an earlier one.
        """
        instructions = _by_name(module)
        self._names.update(dict.fromkeys(instructions))
        wanted: dict[str, None] = {}
        chosen = [f for f in self._asked if f.kind in BETWEEN_HOSTS or any(f.applies_to(d) for d in devices)]
        for fault in chosen:
            if fault.at in instructions:
                self._places[fault.at] = module.locate(instructions[fault.at])
                if fault.kind in IN_A_PROGRAM:
                    wanted[fault.at] = None
            elif fault.at and fault.at not in self._places and fault.device >= 0:
                near = [name for name, i in instructions.items() if i.op.lowering is Lowering.COMMUNICATION]
                close = nearest(fault.at, near)
                words = instructions if close is None else [close]
                refuse(fault, "at", f"{module.name} has no instruction {fault.at}", words)
            elif not fault.at and fault.kind in IN_A_PROGRAM:
                wanted[ANY_POINT] = None
        if self._undrawn or self._drawn():
            wanted[ANY_POINT] = None
        return tuple(sorted(wanted))

    def require_points(self, program: CompiledProgram, devices: Iterable[int], wanted: Sequence[str]) -> None:
        """ArgumentError where an instruction is no step of the compiled program."""
        steps = {name for point in program.points for name in point.names}
        for fault in self._asked:
            if fault.at in wanted and fault.at not in steps and any(fault.applies_to(d) for d in devices):
                refuse(
                    fault,
                    "at",
                    f"{fault.at} is no step of the compiled program: it was simplified, or merged with others",
                    hint="`distxla compile --emit schedule` lists them; what communicates is always among them",
                )

    def _drawn(self) -> bool:
        return any(drawn_by for _, drawn_by in self._faults)

    # --- running

    def between_hosts(self, hosts: int) -> tuple[NetworkFault, ...]:
        """Faults of messages in a run with `hosts` hosts, including drawn ones. ArgumentError for a host that the run
        does not have."""
        for fault in list(self._undrawn):
            if (wanted := [kind for kind in fault.kinds if kind in BETWEEN_HOSTS]) and hosts < 2:
                refuse(fault, "kinds", f"{wanted[0]}: there are no messages between hosts, the run has 1 host")
            self._take(fault, draw_between_hosts(fault, hosts))
        self._between = [fault for fault, _ in self._faults if fault.kind in BETWEEN_HOSTS]
        for fault in self._between:
            for key, host in (("from", fault.source), ("to", fault.target)):
                if host >= hosts or (hosts == 1 and host >= 0):
                    refuse(fault, key, f"host {host}: the run has {_counted(hosts)}")
        return tuple(fault.between_hosts() for fault in self._between)

    def _take(self, fault: Fault, drawn: Iterable[Fault]) -> None:
        for one in drawn:
            self._faults.append((one, fault.spec))
            LOGGER.warning("distxla: %s draws --inject %s", fault.spec, one.spec)

    def prepare(self, executables: Sequence[Executable], hosts: Sequence[range]) -> dict[int, tuple[Fault, ...]]:
        """Draw the random faults, log them, and return the faults of each device; a second call returns nothing.

        hosts: the devices of each host.
        """
        if self._armed:
            return {}
        self._hosts = list(hosts)
        for fault, _ in self._faults:
            if fault.host >= len(hosts):
                refuse(fault, "host", f"host {fault.host}: the run has {_counted(len(hosts))}")
            if fault.at and fault.at not in self._places:
                refuse(fault, "at", f"no program of this run has an instruction {fault.at}", self._names)
        for fault in self._undrawn:
            points = [(device, e.program.points) for e in executables for device in e.devices]
            self._take(fault, draw(fault, points))
            for executable in executables:
                if executable.module is not None:
                    for name, instruction in _by_name(executable.module).items():
                        self._places.setdefault(name, executable.module.locate(instruction))
        found = {d: mine for devices in hosts for d in devices if (mine := self.of_device(d))}
        for device, mine in found.items():
            if len(mine) > MOST_FAULTS:
                refuse(mine[-1], "device", f"device {device} has more than {MOST_FAULTS} faults, with those drawn")
        self._undrawn = []
        self._armed = True
        return found

    def of_device(self, device: int) -> tuple[Fault, ...]:
        """The faults that a device carries out; their places here are the bits of its record's R_INJECTED."""
        return tuple(fault for fault, _ in self._faults if self._carries_out(device, fault))

    def _carries_out(self, device: int, fault: Fault) -> bool:
        if fault.kind is Kind.HOST_LOST:
            return device in self._hosts[fault.host]
        return fault.kind in IN_A_PROGRAM and fault.device == device

    def connect_feeds(self, streams: ClusterStreams) -> None:
        """Make infeeds end early; to be called before the first one is used."""
        streams.ends = {fault.device: fault.after for fault, _ in self._faults if fault.kind is Kind.FEED_ENDS}
        self._feed_ended = streams.was_cut

    # --- outcomes

    def call_over(self, aftermath: Aftermath, error: BaseException | None = None) -> None:
        """A call has ended: add to its error which faults were injected, and where."""
        self._aftermath = aftermath
        if isinstance(error, DistxlaError):
            self._explain(error)

    def _explain(self, error: DistxlaError) -> None:
        happened = [(fault, told) for fault, told in self._told() if told.happened]
        for fault, told in happened:
            if self._caused(fault, error):
                error.message = f"{error.message}; this was injected: {fault.spec}"
                error.location = told.location or error.location
                error.args = (error.message, error.location)
                break
        if error.diagnosis is not None:
            error.diagnosis = replace(error.diagnosis, injected=self.found)
        else:
            for _, told in happened:
                error.add_note(f"injected: {told}")

    def _caused(self, fault: Fault, error: DistxlaError) -> bool:
        assert self._aftermath is not None
        if isinstance(error, StreamEndError):
            return fault.kind is Kind.FEED_ENDS and f"on device {fault.device} " in error.message
        if not isinstance(error, ReplicaLostError):
            return False
        if fault.kind is Kind.HOST_LOST:
            return fault.host in self._aftermath.lost_hosts
        if fault.kind in BETWEEN_HOSTS:
            return fault.kind is not Kind.LATE
        return fault.kind in (Kind.KILL, Kind.STOP) and fault.device in self._aftermath.lost

    @property
    def found(self) -> tuple[Injected, ...]:
        """All faults, in the order of the specs."""
        return tuple(told for _, told in self._told())

    def _told(self) -> Iterator[tuple[Fault, Injected]]:
        for fault, drawn_by in self._faults:
            device = None if fault.device < 0 else fault.device
            place = self._places.get(fault.at)
            yield fault, Injected(fault.spec, self._happened(fault), drawn_by, device, fault.at, place)

    def _happened(self, fault: Fault) -> bool | None:
        if fault.kind is Kind.FEED_ENDS:
            return self._feed_ended(fault.device)
        seen = self._aftermath
        if seen is None or not self._armed:
            return False
        if fault.kind in BETWEEN_HOSTS:
            known = _position(self._between, fault) in seen.messages
            return True if known else None if fault.source in seen.lost_hosts else False
        carriers = [d for devices in self._hosts for d in devices if self._carries_out(d, fault)]
        logs = {d: seen.records.record_long(d, control_words.R_INJECTED) for d in carriers}
        if any(log >> _position(self.of_device(d), fault) & 1 for d, log in logs.items()):
            return True
        index = next(i for i, devices in enumerate(self._hosts) if carriers[0] in devices)
        if index not in seen.lost_hosts:
            return False
        return True if fault.kind is Kind.HOST_LOST else None  # the host can't be asked any more


def _position(faults: Sequence[Fault], fault: Fault) -> int:
    """Of this fault; equal ones may be among them, too."""
    return next(i for i, other in enumerate(faults) if other is fault)


def injection_of(inject: Sequence[str] | Injection, devices: int) -> Injection | None:
    """Specs as an Injection; None where there are none. Raises ArgumentError."""
    if isinstance(inject, Injection):
        return inject
    return Injection(inject, devices) if inject else None


def _counted(hosts: int) -> str:
    return f"{hosts} host{'s' * (hosts > 1)}"


def _by_name(module: Module) -> dict[str, Instruction]:
    """An instruction of each name: where several computations have one, one that communicates."""
    found: dict[str, Instruction] = {}
    for computation in module.computations:
        for instruction in computation:
            other = found.get(instruction.name)
            if other is None or other.op.lowering is not Lowering.COMMUNICATION:
                found[instruction.name] = instruction
    return found


__all__ = ["Aftermath", "Injection", "injection_of"]
