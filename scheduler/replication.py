"""Results that are declared the same on several devices, but are not surely so: a `psum` may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
    """A result whose declaration nothing in the program ensures.

    result: number of the leaf.  devices: that are declared to have the same.  cause: what differs between them, in
    words.  cause_instruction: a parameter, a device id, a receive.  instruction: where the program makes of it what
    the result is made of: the last instruction that sums over a device's own part, else the first one.  location,
    frame: of that, in the text and in the user's own program.
    """

    result: int
    devices: tuple[int, ...]
    cause: str
    cause_instruction: str
    instruction: str
    opcode: str
    location: Location | None
    frame: str | None

    @property
    def text(self) -> str:
        sums = f": it sums each device's own part, a psum of {self.instruction} may be missing" * _sums(self.opcode)
        where = "" if self.instruction == self.cause_instruction else f"; it enters in {self.instruction}{sums}"
        return (
            f"out{self.result} is declared the same on {named(self.devices)}, and isn't surely: "
            f"it depends on {self.cause}, and no collective joins that{where}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "result": self.result,
            "devices": list(self.devices),
            "cause": self.cause,
            "cause_instruction": self.cause_instruction,
            "instruction": self.instruction,
            "opcode": self.opcode,
            "location": None if self.location is None else str(self.location),
            "source": self.frame,
        }


def unsure_results(
    module: Module,
    counts: Counts,
    parameters: Sequence[Shards | None],
    results: Sequence[Shards | None],
) -> list[UnsureResult]:
    """For each result that is declared the same on several devices and isn't surely the first such group.

    module: the program of every device.  parameters, results: how the leaves are cut; None where nothing says so.
    """
    wanted = [(k, group) for k, shards in enumerate(results) if shards is not None for group in _groups(shards)]
    if not wanted:
        return []
    module = executed_form(module)
    analysis = UniformityAnalysis(module, counts)
    labels = [_labels(analysis, shards, counts) for shards in parameters]
    leaves = analysis.results(labels)
    found: dict[int, UnsureResult] = {}
    for number, group in wanted:
        if number in found:
            continue
        for replica in range(counts.replicas):
            devices = tuple(replica * counts.partitions + partition for partition in group)
            if not analysis.classes.joins(leaves[number].labels, devices):
                found[number] = _unsure(module, analysis, number, leaves[number], devices, parameters)
                break
    return list(found.values())


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
    number: int,
    leaf: Leaf,
    devices: tuple[int, ...],
    parameters: Sequence[Shards | None],
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
