"""Which module runs on which devices, how many devices there are, and the order in which they communicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distxla.collectives.channels import ProgramTransfers, joined_keys, module_transfers, read_ends
from distxla.collectives.implied_counts import implied_counts
from distxla.collectives.joined_channels import notes
from distxla.collectives.protocols.control_block import MOST_DEVICES
from distxla.collectives.transfer import Transfer
from distxla.compiler.partitioners import device_program
from distxla.compiler.passes.manual_partitions import PerDevice
from distxla.compiler.verify.world import verify_order, verify_world
from distxla.errors import ArgumentError, DeadlockError, DistxlaError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.effects import COMMUNICATING
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.support.one_device_groups import OneDeviceGroups, one_device_groups
from distxla.rewrites.reduction_order import ReductionOrder
from distxla.scheduler.communication_order import JointOrder, order_communication
from distxla.time_limit import phase
from distxla.wording import counted

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GivenProgram:
    """A module as the user gives it. path: what messages call it.  devices: that run it, ascending; None for all.

    generated: as of DeviceProgram.
    """

    path: str
    module: Module
    devices: tuple[int, ...] | None = None
    generated: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceProgram:
    """A module and the flattened ids of the devices that run it, ascending but for an assignment.

    module: the program of each device.  whole: the global arrays where the file holds a global module, else None.
    generated: the constants whose values the file leaves out and the run generates.
    """

    path: str
    module: Module
    devices: tuple[int, ...]
    whole: PerDevice | None = None
    generated: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunPrograms:
    """All programs of one run. The counts are the whole world's, whichever devices the programs take.

    parse_s: seconds spent on reading the modules.  stated: replicas and partitions as headers, flags or devices after
    `@` say them, None for a count that is assumed to be one.
    order: how `settled` found the order of communication.
    assignment: of the only program, which then has ids of its own: the device of the cluster for each of them.
    cluster_devices: how many that cluster has.  on_command_line: whether messages name options of the command line, or
    arguments of a function.
    """

    programs: tuple[DeviceProgram, ...]
    counts: Counts
    parse_s: float
    stated: tuple[int | None, int | None]
    order: JointOrder | None = None
    assignment: tuple[int, ...] | None = None
    cluster_devices: int = 0
    on_command_line: bool = True

    @property
    def device_count(self) -> int:
        """Devices of the cluster."""
        return self.counts.devices if self.assignment is None else self.cluster_devices

    @property
    def cluster_counts(self) -> Counts:
        return self.counts if self.assignment is None else Counts(1, self.cluster_devices)

    @property
    def table(self) -> list[tuple[int, ...]] | None:
        """The assignment by replica and partition."""
        if self.assignment is None:
            return None
        return [
            self.assignment[r * self.counts.partitions : (r + 1) * self.counts.partitions]
            for r in range(self.counts.replicas)
        ]

    def logical(self, device: int) -> int:
        """The flattened id that the programs have for a device of the cluster."""
        return device if self.assignment is None else self.assignment.index(device)

    def assigned(self, assignment: tuple[int, ...] | None, devices_per_host: tuple[int, ...] | None) -> RunPrograms:
        """The only program, on these devices of a cluster: of as many as the hosts have, or else just enough.

        None leaves everything as it is. ArgumentError where the program has another number of devices.
        """
        if assignment is None:
            return self
        option = "--device-assignment"
        if len(self.programs) > 1:
            raise ArgumentError(f"{option} is for one module, found {len(self.programs)}")
        if len(assignment) != self.device_count:
            raise ArgumentError(
                f"{option} names {counted(len(assignment), 'device')}, the program has {self.counts_text}"
            )
        devices = max(assignment) + 1 if devices_per_host is None else sum(devices_per_host)
        if max(assignment) >= devices:
            raise ArgumentError(
                f"{option} names device {max(assignment)}, --devices-per-host gives devices 0 to {devices - 1}"
            )
        programs = (replace(self.programs[0], devices=assignment),)
        return replace(self, programs=programs, assignment=assignment, cluster_devices=devices)

    @property
    def counts_text(self) -> str:
        """`2 replicas x 4 partitions`."""
        return _product(self.counts)

    def shard(self, leaves: str, k: int, device: int, array: Array) -> Array:
        """A device's part of an array that was given whole, as a view; other arrays as they are.

        leaves: "arg" or "out".
        """
        whole = self.program_of[device].whole
        if whole is None:
            return array
        placed = (whole.parameters if leaves == "arg" else whole.results)[k]
        return (
            placed.shards.split(array, self.logical(device) % self.counts.partitions)
            if placed.is_whole(array.shape)
            else array
        )

    def joined(self, program: DeviceProgram, outs: Mapping[int, Sequence[Array | None]]) -> list[tuple[int, Array]]:
        """(leaf, whole array) of a global module's results; none where there is more than one replica of them."""
        if program.whole is None or self.counts.replicas > 1 or len(program.devices) < self.counts.partitions:
            return []
        found = []
        for k, placed in enumerate(program.whole.results):
            shards = [outs[device][k] for device in program.devices]
            if all(shard is not None for shard in shards):
                found.append((k, placed.shards.join(shards)))
        return found

    def in_order(self, reduction_order: str | None) -> RunPrograms:
        """The same programs with their reductions in that order; None leaves them as they are."""
        if reduction_order is None:
            return self
        step = ReductionOrder(reduction_order)
        programs = tuple(replace(p, module=step.run(p.module)) for p in self.programs)
        return replace(self, programs=programs)

    def settled(self) -> RunPrograms:
        """The same programs, verified, with their communication in an order in which devices don't wait for each other
        for ever, where there is one (scheduler/communication_order.py); scheduled ones stay as they are.

        Raises VerificationError and CollectiveMismatchError for the first rule that a program, or all of them together,
        break.
        """
        with phase("checking"):
            self.verify()
        with phase("ordering what devices do together"):
            named = [tuple(map(self.logical, p.devices)) for p in self.programs]
            order = order_communication(list(zip(named, [p.module for p in self.programs], strict=True)), self.counts)
            programs = tuple(replace(p, module=m) for p, m in zip(self.programs, order.modules, strict=True))
            verify_order(list(zip(named, order.modules, strict=True)), self.counts)
        return replace(self, programs=programs, order=order)

    def verify(self) -> None:
        """VerificationError for the first rule that a program, or all of them together, break, whatever the order in
        which they communicate."""
        programs = [(p.devices, p.module) for p in self.programs]
        try:
            verify_world(programs, self.counts, in_order=False, assignment=self.assignment)
        except (VerificationError, DeadlockError) as error:
            self.explain(error)
            raise

    def explain(self, error: DistxlaError) -> None:
        """Add to an error of the verifier the unknown counts of the run."""
        for note in self._notes_on_counts():
            error.add_note(note)

    def _notes_on_counts(self) -> Iterator[str]:
        """The unknown counts of a run that can't be, and flags that would state them."""
        modules = [program.module for program in self.programs]
        if None not in self.stated or not any(i.op.effects in COMMUNICATING for m in modules for i in _all(m)):
            return
        if self.stated == (None, None):
            given = "--replicas, --partitions" if self.on_command_line else "the arguments replicas, partitions"
            yield f"neither the header nor {given} say how many devices: one is assumed"
        implied = implied_counts(modules, *self.stated)
        named = zip(("replicas", "partitions"), self.stated, implied or (1, 1), strict=True)
        flags = [
            f"--{what} {count}" if self.on_command_line else f"{what}={count}"
            for what, stated, count in named
            if stated is None and count > 1
        ]
        if flags:
            yield f"the program's groups and pairs imply {' '.join(flags)}"

    def channels(self) -> dict[int, list[tuple[int, int]]]:
        """(source, target) of the devices' transfers, by channel; of a world that has been verified."""
        found: dict[int, list[tuple[int, int]]] = {}
        for transfer in self._transfers:
            found.setdefault(transfer.channel, []).append((transfer.source, transfer.target))
        return found

    def channel_notes(self) -> list[str]:
        """Which channels were joined though their ids differ; of a world that has been verified."""
        ends = [ProgramTransfers(p.devices, read_ends(p.module)) for p in self.programs]
        return list(notes(self._transfers)) if joined_keys(ends, self.counts) else []

    @cached_property
    def _transfers(self) -> tuple[Transfer, ...]:
        programs = [(p.devices, p.module) for p in self.programs]
        return module_transfers(programs, self.counts, self.assignment)

    def one_device_groups(self) -> list[OneDeviceGroups]:
        """Of each program that has some: the collectives that join no devices; of a world that has been verified."""
        found = (one_device_groups(p.module, self.counts) for p in self.programs)
        return [one for one in found if one is not None]

    def moves(self) -> list[dict[str, str | None]]:
        """The instructions that `settled` executes earlier than in the text, for JSON."""
        return [
            {
                "program": self.programs[move.program].path,
                "instruction": move.instruction.name,
                "location": str(move.location) if move.location else None,
                "before": move.first_of.name,
                "before_location": str(move.first_location) if move.first_location else None,
            }
            for move in (self.order.moves if self.order is not None else ())
        ]

    @property
    def program_of(self) -> dict[int, DeviceProgram]:
        """By flattened device id, ascending."""
        return dict(sorted((device, program) for program in self.programs for device in program.devices))


def programs_of_run(
    given: Sequence[GivenProgram],
    replicas: int | None,
    partitions: int | None,
    *,
    parse_s: float = 0.0,
    on_command_line: bool = True,
) -> RunPrograms:
    """The programs of a run, global modules partitioned, with the counts that arguments, headers or devices say.

    replicas, partitions: as far as the caller says them.  parse_s: as of RunPrograms. Raises ArgumentError where they
    contradict each other; the errors of `device_program`. Blocks while XLA's partitioner works.
    """
    _require_disjoint(given)
    with phase("partitioning"):
        wholes = [device_program(one.module, partitions, replicas) for one in given]
    modules = [one.module if whole is None else whole.module for one, whole in zip(given, wholes, strict=True)]
    named = [device for one in given for device in one.devices or ()]
    headers = [(one.path, module) for one, module in zip(given, modules, strict=True)]
    r = _agree("replicas", replicas, headers, on_command_line)
    p = _agree("partitions", partitions, headers, on_command_line)
    if r is None and p is None and named:
        r, p = 1, max(named) + 1
    stated = r, p
    counts = Counts(r or 1, p or 1)
    if counts.devices > MOST_DEVICES:
        raise ArgumentError(
            f"{counts.replicas} x {counts.partitions} devices are more than the {MOST_DEVICES} that a run may have"
        )
    if named and max(named) >= counts.devices:
        raise ArgumentError(f"device {max(named)} is named, but {_product(counts)} end at {counts.devices - 1}")
    programs = tuple(
        DeviceProgram(
            one.path, module, tuple(range(counts.devices)) if one.devices is None else one.devices, whole, one.generated
        )
        for one, module, whole in zip(given, modules, wholes, strict=True)
    )
    return RunPrograms(programs, counts, parse_s, stated, on_command_line=on_command_line)


def _all(module: Module) -> Iterator[Instruction]:
    return (instruction for computation in module.computations for instruction in computation)


def _require_disjoint(given: Sequence[GivenProgram]) -> None:
    owner: dict[int, str] = {}
    for one in given:
        for device in one.devices or ():
            if device in owner:
                raise ArgumentError(f"device {device} is given to both {owner[device]} and {one.path}")
            owner[device] = one.path


def _product(counts: Counts) -> str:
    return f"{counted(counts.replicas, 'replica')} x {counted(counts.partitions, 'partition')}"


def _agree(what: str, flag: int | None, headers: Sequence[tuple[str, Module]], on_command_line: bool) -> int | None:
    """The one count that flag and headers state; None if none of them does."""
    attribute = {"replicas": "replica_count", "partitions": "num_partitions"}[what]
    stated: tuple[str, int] | None = (
        None if flag is None else (f"--{what}" if on_command_line else f"the argument {what}", flag)
    )
    for path, module in headers:
        count: int | None = getattr(module, attribute)
        if count is None:
            continue
        if stated is not None and stated[1] != count:
            text = f"{path} says {attribute}={count}, {stated[0]} says {stated[1]}"
            raise ArgumentError(text, module.locate_header(attribute))
        stated = stated or (path, count)
    return stated[1] if stated else None
