"""What communicates in a run: each instruction with the devices that it joins, how many bytes it takes, how often.

Bytes are those of the operands that a device gives away: of every member of a group, of the sources of a permute or a
send, of the first member of a broadcast's group. A device that is alone in its group, or sends to itself, gives nothing
away. How many of them a transport moves depends on its algorithm; a ring of n members moves about 2 (n - 1) / n times
the bytes of an all-reduce.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

from distxla.collectives.channels import is_end, payload_of
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.ragged_all_to_all import RaggedAllToAll
from distxla.ops.support.collective_start_done import single_collective
from distxla.ops.support.executable import CollectiveOp
from distxla.rewrites.executed_form import executed_form
from distxla.scheduler.execution_counts import ExecutionCounts
from distxla.scheduler.simulation.communication import Communication
from distxla.scheduler.tpu_kernel import communicates
from distxla.wording import ranges

HOST = "host"
KERNEL = "only its kernel says"
Bounds = tuple[int, int] | None


@dataclass(frozen=True)
class CommunicationRow:
    """An instruction that communicates.

    program: its number among the run's.  kind: all-reduce, collective-permute, send, …, of a pair that begins and ends
    without `-start`.  parts: the groups, as in `{0-3}`, or the pairs, as in `0 to 1`.  axes: the mesh axes along which
    the groups lie, where the text names them, as in `'model' of mesh['data'=4,'model'=2]`; None for other groups.
    channel: its id, None without one.  byte_count: bytes that a device gives in one execution; None where only a kernel
    knows.  givers: the number of devices that give some.  trips: executions by each device that takes part; None where
    only the run tells, or where devices differ.  byte_count_in_all: over devices and executions; None where that isn't
    known.  source: the line of the user's program, `file.py:36:28 in loss`.  location: in the HLO text.
    """

    program: int
    instruction: str
    kind: str
    parts: tuple[str, ...]
    axes: str | None
    channel: int | None
    byte_count: int | None
    givers: int
    trips: int | None
    byte_count_in_all: int | None
    source: str | None
    location: Location | None

    @property
    def groups(self) -> str:
        """The axes, or all groups or pairs."""
        return self.axes or self.first_groups(len(self.parts))

    def first_groups(self, most: int) -> str:
        """`{0-3},{4-7}`; of more groups the first ones and their number."""
        if self.axes is not None:
            return self.axes
        between = "," if self.parts and self.parts[0].startswith("{") else ", "
        more = f"{between}… ({len(self.parts)} in all)" if len(self.parts) > most else ""
        return (between.join(self.parts[:most]) + more) or "no device"

    def as_json(self) -> dict[str, Any]:
        """Objects of JSON, without the program."""
        return {
            "instruction": self.instruction,
            "kind": self.kind,
            "groups": self.groups,
            "channel": self.channel,
            "bytes": self.byte_count,
            "devices": self.givers,
            "trips": self.trips,
            "bytes_in_all": self.byte_count_in_all,
            "source": self.source,
            "location": str(self.location) if self.location else None,
        }


def communication_table(programs: Sequence[tuple[Iterable[int], Module]], counts: Counts) -> list[CommunicationRow]:
    """The communicating instructions of programs, each with the flattened ids of its devices; verified together. In the
    order of the texts; of a pair that begins and ends, and of a transfer, the instruction that begins it."""
    executed = [(tuple(sorted(devices)), executed_form(module)) for devices, module in programs]
    communication = Communication(executed, counts)
    return [
        row
        for number, (devices, module) in enumerate(executed)
        for row in _Program(communication, number, frozenset(devices), module).rows()
    ]


@dataclass(frozen=True)
class _Ends:
    """Who takes part in an instruction. bounds: of a device that gives, the executions that transfer."""

    parts: tuple[str, ...]
    members: frozenset[int]
    givers: Mapping[int, Bounds]
    axes: str | None = None


@dataclass(frozen=True, eq=False)
class _Program:
    communication: Communication
    number: int
    devices: frozenset[int]
    module: Module

    def rows(self) -> Iterator[CommunicationRow]:
        for computation in self.module.reached():
            if computation.name in self._begun:
                continue  # the instruction that begins it stands for its collective
            for instruction in computation:
                op = self._acting(instruction).op
                if isinstance(op, CollectiveOp) and not op.start_done.completes:
                    yield self._row(computation, instruction, op, self._groups(op))
                elif is_end(instruction):
                    yield self._row(computation, instruction, op, self._transfers(computation, instruction))
                elif op.transfer.starts or op.effects is Effects.FEED:
                    ends = _Ends((HOST,), self.devices, dict.fromkeys(self.devices))
                    yield self._row(computation, instruction, op, ends)
                elif communicates(instruction):
                    ends = _Ends((KERNEL,), self.devices, dict.fromkeys(self.devices))
                    yield self._row(computation, instruction, op, ends)

    @cached_property
    def _counts(self) -> ExecutionCounts:
        return ExecutionCounts(self.module, self.devices, self.communication.counts)

    @cached_property
    def _begun(self) -> frozenset[str]:
        """Computations of one collective that an async-start begins."""
        starts = [
            i.op.called_computations[0] for c in self.module.computations for i in c if i.op.start_done.starts_async
        ]
        return frozenset(name for name in starts if single_collective(self.module[name]) is not None)

    def _acting(self, instruction: Instruction) -> Instruction:
        """Of an async-start the collective that it begins."""
        called = instruction.op.called_computations
        if instruction.op.start_done.starts_async and called[0] in self._begun:
            return self.module[called[0]].root_instruction
        return instruction

    def _row(self, computation: Computation, instruction: Instruction, op: Op, ends: _Ends) -> CommunicationRow:
        size = None if ends.parts == (KERNEL,) else _bytes_given(computation, instruction, op)
        trips, given = self._executions(computation.name, ends)
        in_all = 0 if size == 0 else None if size is None or given is None else size * given
        return CommunicationRow(
            self.number,
            instruction.name,
            getattr(op, "round_opcode", op.opcode),
            ends.parts,
            ends.axes,
            op.channel,
            size,
            len(ends.givers) if size != 0 else 0,
            trips,
            in_all,
            self.module.frame(instruction),
            self.module.locate(instruction),
        )

    def _executions(self, computation: str, ends: _Ends) -> tuple[int | None, int | None]:
        """By each device that takes part, if all have equally many; and those of all devices that give something."""
        if self._counts.are_equal(computation):
            trips = self._counts.of_each(computation)
            if not any(ends.givers.values()):
                return trips, None if trips is None else trips * len(ends.givers)
        counts = self._counts.of(computation)
        taking = {counts.get(device, 0) for device in ends.members}
        times = [_within(counts.get(device, 0), bounds) for device, bounds in ends.givers.items()]
        known = [count for count in times if count is not None]
        return taking.pop() if len(taking) == 1 else None, sum(known) if len(known) == len(times) else None

    @cached_property
    def _kept_groups(self) -> dict[Hashable, _Ends]:
        return {}

    def _groups(self, op: CollectiveOp) -> _Ends:
        """Instructions with the same groups share the answer."""
        who = getattr(op, "source_target_pairs", None) or getattr(op, "replica_groups", None)
        key = (op.group_mode, who, isinstance(op, CollectiveBroadcast), isinstance(op, CollectivePermute))
        if key not in self._kept_groups:
            self._kept_groups[key] = self._found_groups(op)
        return self._kept_groups[key]

    def _found_groups(self, op: CollectiveOp) -> _Ends:
        counts = self.communication.counts
        if isinstance(op, CollectivePermute):
            pairs = [pair for pair in op.device_pairs(counts) if not self.devices.isdisjoint(pair)]
            mine = self.devices.intersection(device for pair in pairs for device in pair)
            givers = dict.fromkeys(source for source, target in pairs if source in self.devices and source != target)
            return _Ends(tuple(f"{source} to {target}" for source, target in pairs), mine, givers)
        silent = frozenset(op.silent_devices(counts))
        groups = [g for g in op.device_groups(counts) if not self.devices.isdisjoint(g) and silent.isdisjoint(g)]
        mine = self.devices.intersection(device for group in groups for device in group)
        giving = [g[:1] if isinstance(op, CollectiveBroadcast) else g for g in groups if len(g) > 1]
        givers = dict.fromkeys(device for group in giving for device in group if device in mine)
        text = tuple("{" + ranges(group) + "}" for group in groups)
        return _Ends(text, mine, givers, _axes(getattr(op, "replica_groups", None)))

    def _transfers(self, computation: Computation, instruction: Instruction) -> _Ends:
        """Of a send or recv."""
        operands = tuple(operand.shape for operand in computation.operands(instruction))
        edges = self.communication.site(self.number, instruction, instruction, operands).edges
        pairs = dict.fromkeys((edge.source, edge.target) for edge, _ in edges.values())
        givers = {device: bounds for device, (_, bounds) in edges.items()} if instruction.op.transfer.sends else {}
        return _Ends(tuple(f"{source} to {target}" for source, target in pairs), frozenset(edges), givers)


def _bytes_given(computation: Computation, instruction: Instruction, op: Op) -> int:
    """Of the operands that other devices, or the host, get."""
    operands = [operand.shape for operand in computation.operands(instruction)]
    if isinstance(op, CollectivePermute) and op.slice_sizes:
        inputs = list(operands[0].leaves())
        each = len(op.slice_sizes) // len(inputs)
        return sum(prod(s) * inputs[k // each].dtype.byte_size for k, s in enumerate(op.slice_sizes))
    if op.transfer.starts:
        return payload_of(instruction).byte_size if op.transfer.sends else 0
    if isinstance(op, RaggedAllToAll):
        operands = operands[:1]  # at most: the sizes are values
    return sum(shape.byte_size for shape in operands)


def _within(count: int | None, bounds: Bounds) -> int | None:
    """How many of the executions are within inclusive bounds, counted from 0."""
    if bounds is None:
        return count
    first, last = bounds
    if last < first:
        return 0
    return None if count is None else max(0, min(count - 1, last) - first + 1)


def _axes(groups: Any) -> str | None:
    """`'model' of mesh['data'=4,'model'=2]`, of groups that are written `mesh['data'=4,'model'=2] {'model'}`."""
    text = getattr(groups, "mesh", None)
    if text is None:
        return None
    mesh, _, axes = text.removesuffix("}").rpartition("{")
    return f"{axes.strip() or 'no axis'} of {mesh.strip()}"


__all__ = ["HOST", "CommunicationRow", "communication_table"]
