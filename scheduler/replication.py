"""Results, and values inside of a program, that are declared the same on several devices, but are not surely so: a
`psum` may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shards import Shards
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.rewrites.executed_form import executed_form
from distxla.scheduler.uniformity import Labels, Leaf, UniformityAnalysis, path_of
from distxla.wording import named

_CONTRACTING = ("dot", "convolution", "reduce-window", "scatter", "select-and-scatter")


@dataclass(frozen=True)
class UnsureResult:
    """A result, or a value inside of the program, whose declaration nothing in the program ensures.

    result: number of the leaf; None for a value inside.  value: the instruction that has the value, "" for a result.
    op_name: of that instruction, as its metadata has it.  devices: that are declared to have the same.  cause: what
    differs between them, in words.  cause_instruction: a parameter, a device id, a receive.  instruction: where the
    program makes of it what the result is made of: the last instruction that sums over a device's own part, else the
    first one.  location, frame: of that, in the text and in the user's own program.
    """

    result: int | None
    devices: tuple[int, ...]
    cause: str
    cause_instruction: str
    instruction: str
    opcode: str
    location: Location | None
    frame: str | None
    value: str = ""
    op_name: str = ""

    @property
    def text(self) -> str:
        sums = f": it sums each device's own part, a psum of {self.instruction} may be missing" * _sums(self.opcode)
        where = "" if self.instruction == self.cause_instruction else f"; it enters in {self.instruction}{sums}"
        name = f"out{self.result}" if self.result is not None else described_value(self.value, self.op_name)
        return (
            f"{name} is declared the same on {named(self.devices)}, and isn't surely: "
            f"it depends on {self.cause}, and no collective joins that{where}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "result": self.result,
            "value": self.value or None,
            "op_name": self.op_name or None,
            "devices": list(self.devices),
            "cause": self.cause,
            "cause_instruction": self.cause_instruction,
            "instruction": self.instruction,
            "opcode": self.opcode,
            "location": None if self.location is None else str(self.location),
            "source": self.frame,
        }


def described_value(name: str, op_name: str) -> str:
    """A value inside of a program in a message."""
    return f"{name} ({op_name})" if op_name else name


def unsure_results(
    module: Module,
    counts: Counts,
    parameters: Sequence[Shards | None],
    results: Sequence[Shards | None],
    values: Mapping[tuple[str, str], Shards] | None = None,
) -> list[UnsureResult]:
    """For each result that is declared the same on several devices and isn't surely the first such group; then the same
    for values inside of the program, of which those are left out that differ by the same instruction as one before.

    module: the program of every device.  parameters, results: how the leaves are cut; None where nothing says so.
    values: how values are cut, by computation and instruction.
    """
    wanted = [(k, group) for k, shards in enumerate(results) if shards is not None for group in _groups(shards)]
    values = values or {}
    if not wanted and not values:
        return []
    module = executed_form(module)
    unsure: dict[tuple[str, str], tuple[Leaf, tuple[int, ...]]] = {}

    def see(computation: Computation, instruction: Instruction, leaves: list[Leaf]) -> None:
        """In a loop it is told more and finer classes: the first that don't fit are no better at the end."""
        key = computation.name, instruction.name
        shards = values.get(key)
        if shards is not None and key not in unsure:
            devices = _apart(analysis, leaves[0], _groups(shards), counts)
            if devices is not None:
                unsure[key] = leaves[0], devices

    analysis = UniformityAnalysis(module, counts, see if values else None)
    leaves = analysis.results([_labels(analysis, shards, counts) for shards in parameters])
    found: dict[int, UnsureResult] = {}
    for number, group in wanted:
        if number in found:
            continue
        devices = _apart(analysis, leaves[number], [group], counts)
        if devices is not None:
            found[number] = _unsure(module, analysis, number, leaves[number], devices, parameters)
    told = list(found.values())
    causes = {(one.cause_instruction, one.instruction) for one in told}
    for (computation, name), (leaf, devices) in unsure.items():
        one = _unsure(module, analysis, None, leaf, devices, parameters, module[computation][name])
        if (one.cause_instruction, one.instruction) not in causes:
            causes.add((one.cause_instruction, one.instruction))
            told.append(one)
    return told


def _apart(
    analysis: UniformityAnalysis, leaf: Leaf, groups: Iterable[tuple[int, ...]], counts: Counts
) -> tuple[int, ...] | None:
    """The first of these groups of partitions, as devices of a replica, that may have different values."""
    for group in groups:
        for replica in range(counts.replicas):
            devices = tuple(replica * counts.partitions + partition for partition in group)
            if not analysis.classes.joins(leaf.labels, devices):
                return devices
    return None


def _groups(shards: Shards) -> Iterator[tuple[int, ...]]:
    """Partitions that hold the same part."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for partition, place in enumerate(shards.places):
        groups.setdefault(place, []).append(partition)
    yield from (tuple(group) for group in groups.values() if len(group) > 1)


def _labels(analysis: UniformityAnalysis, shards: Shards | None, counts: Counts) -> Labels:
    """Of a parameter: each replica's arguments are its own."""
    if shards is None or len(shards.places) != counts.partitions:
        return analysis.classes.own
    return analysis.classes.of((replica, place) for replica in range(counts.replicas) for place in shards.places)


def _unsure(
    module: Module,
    analysis: UniformityAnalysis,
    number: int | None,
    leaf: Leaf,
    devices: tuple[int, ...],
    parameters: Sequence[Shards | None],
    value: Instruction | None = None,
) -> UnsureResult:
    path = path_of(leaf, lambda labels: not analysis.classes.joins(labels, devices))
    steps = [one.instruction for one in path if one.instruction is not None]
    cause = steps[0]
    place = _place(steps)
    return UnsureResult(
        number,
        devices,
        _described(module, cause, parameters),
        cause.name,
        place.name,
        place.opcode,
        module.locate(place),
        module.frame(place),
        "" if value is None else value.name,
        "" if value is None or value.metadata is None else value.metadata.op_name,
    )


def _place(steps: Sequence[Instruction]) -> Instruction:
    """Where a collective is missing, on the way from the cause to the result."""
    made = [i for i in steps if not i.op.role.is_parameter and i.op.lowering is not Lowering.ALIAS]
    after = made
    for position, instruction in enumerate(made):
        if instruction.op.is_collective:
            after = made[position + 1 :] or made[position:]
    summing = [i for i in after if _sums(i.opcode)]
    return summing[-1] if summing else after[0] if after else steps[0]


def _sums(opcode: str) -> bool:
    return opcode in (*_CONTRACTING, "reduce")


def _described(module: Module, cause: Instruction, parameters: Sequence[Shards | None]) -> str:
    if not cause.op.role.is_parameter:
        return f"{cause.name} ({cause.opcode})"
    first = 0
    for parameter in module.entry_computation.parameters:
        if parameter.name == cause.name:
            break
        first += parameter.shape.leaf_count
    shards = parameters[first] if first < len(parameters) else None
    if shards is None:
        return f"arg{first} ({cause.name}), which nothing declares the same"
    cut = [f"dimension {d} into {count}" for d, count in enumerate(shards.tiles) if count > 1]
    return f"arg{first} ({cause.name}), which is cut: {_joined(cut)}"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)
