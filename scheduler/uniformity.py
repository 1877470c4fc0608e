"""Which devices surely have the same value of each array of a program, before it runs.

A forward analysis over the whole program: constants are the same everywhere, the device's ids are not, parameters are
as they are cut, collectives give the members of a group the same, what comes from other devices by channels and from
the host is each device's own, and everything else, custom-calls and random numbers too, has equal results where its
operands are equal. Loops are repeated until nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, cast

import numpy as np

from distxla.errors import DistxlaError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.effects import COMMUNICATING, Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.lazy_dataclass import dataclass
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.control_flow import Conditional, While
from distxla.ops.support.collective import GroupedCollective
from distxla.scheduler.simulation.static_values import Constant as Known
from distxla.scheduler.simulation.static_values import content, evaluated, is_small

Labels = int  # number of a division of the devices into classes, in Classes
SAME: Labels = 0
MOST_CALLS = 256  # of one computation with different arguments, from which on only the arguments' classes count


class Classes:
    """Divisions of the devices into classes with the same value each."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._numbers: dict[tuple[int, ...], Labels] = {}
        self._rows: list[tuple[int, ...]] = []
        self._met: dict[tuple[Labels, Labels], Labels] = {}
        self.of([0] * devices)
        self.own = self.of(range(devices))

    def of(self, keys: Iterable[Hashable]) -> Labels:
        """Devices with equal keys are in one class."""
        numbers: dict[Hashable, int] = {}
        row = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
        if row not in self._numbers:
            self._numbers[row] = len(self._rows)
            self._rows.append(row)
        return self._numbers[row]

    def row(self, labels: Labels) -> tuple[int, ...]:
        """The class of each device."""
        return self._rows[labels]

    def meet(self, one: Labels, other: Labels) -> Labels:
        """The devices that are in one class of both."""
        if one == other or other == SAME:
            return one
        if one == SAME:
            return other
        key = min(one, other), max(one, other)
        if key not in self._met:
            self._met[key] = self.of(zip(self._rows[one], self._rows[other]))
        return self._met[key]

    def joins(self, labels: Labels, devices: Sequence[int]) -> bool:
        """Whether these devices are in one class."""
        row = self._rows[labels]
        return all(row[device] == row[devices[0]] for device in devices)


@dataclass(eq=False, slots=True)
class Leaf:
    """An array. values: by device, where they are known before a run.  instruction, computation: that made it.
    source: the operand because of which devices differ; None where the instruction itself is the reason."""

    labels: Labels
    values: tuple[Any, ...] | None = None
    instruction: Instruction | None = None
    computation: Computation | None = None
    source: Leaf | None = None


Leaves = list[Leaf]
See = Callable[[Computation, Instruction, Leaves], None]
"""Is told the leaves of each instruction, of one in a loop several times: the last one's classes hold for all."""


class UniformityAnalysis:
    """One program on all devices of the counts."""

    def __init__(self, module: Module, counts: Counts, see: See | None = None) -> None:
        self._module, self._counts, self._see = module, counts, see
        self.classes = Classes(counts.devices)
        # with the arguments, so that no other leaf gets the id of one of their sources
        self._known: dict[tuple[str, tuple[Any, ...]], tuple[Sequence[Leaves], Leaves]] = {}
        self._calls: Counter[str] = Counter()

    def results(self, parameters: Sequence[Labels]) -> Leaves:
        """The leaves of the entry's result. parameters: of the leaves of its parameters."""
        entry = self._module.entry_computation
        given = iter(parameters)
        arguments = [[Leaf(next(given), None, p, entry) for _ in p.shape.leaves()] for p in entry.parameters]
        return self._computation(entry, arguments)

    # --- computations

    def _computation(self, computation: Computation, arguments: Sequence[Leaves]) -> Leaves:
        values: dict[str, Leaves] = {}
        for instruction in computation:
            if instruction.op.role.is_parameter:
                values[instruction.name] = list(arguments[instruction.op.number])  # type: ignore[attr-defined]
                continue
            operands = [values[name] for name in instruction.operands]
            values[instruction.name] = found = self._instruction(computation, instruction, operands)
            if self._see is not None:
                self._see(computation, instruction, found)
        return values[computation.root]

    def _called(self, name: str, arguments: Sequence[Leaves]) -> Leaves:
        """A computation that several instructions may call: computed once for equal arguments.

        Calls that double thirty times would have as many different arguments. So of a computation that is called very
        often known values are dropped, and calls with equal classes share the result, and the causes that it names.
        """
        is_frequent = self._calls[name] >= MOST_CALLS
        if is_frequent:
            arguments = [
                [Leaf(leaf.labels, None, leaf.instruction, leaf.computation, leaf.source) for leaf in leaves]
                for leaves in arguments
            ]
        elif any(leaf.values is not None for leaves in arguments for leaf in leaves):
            self._calls[name] += 1
            return self._computation(self._module[name], arguments)
        sources = [0 if is_frequent else id(leaf.source) for leaves in arguments for leaf in leaves]
        key = name, (*(leaf.labels for leaves in arguments for leaf in leaves), *sources)
        if key not in self._known:
            self._calls[name] += 1
            self._known[key] = arguments, self._computation(self._module[name], arguments)
        return self._known[key][1]

    def _instruction(self, computation: Computation, instruction: Instruction, operands: list[Leaves]) -> Leaves:
        op = instruction.op
        if not any(leaf.is_array for leaf in instruction.shape.leaves()):  # tokens
            return [Leaf(SAME)] * instruction.shape.leaf_count
        if op.role.is_constant:
            return self._constant(computation, instruction)
        if op.role.is_device_id or op.lowering is Lowering.NONE:
            return self._of_operands(computation, instruction, operands)
        if op.lowering is Lowering.ALIAS:
            shapes = [o.shape for o in computation.operands(instruction)]
            return list(op.result_leaves(shapes, [tuple(leaves) for leaves in operands]))
        if isinstance(op, While):
            return self._loop(computation, instruction, op, operands[0])
        if isinstance(op, Conditional):
            return self._branch(computation, instruction, op, operands)
        if op.lowering is Lowering.CALL:
            return self._called(op.called_computations[0], operands)
        if op.begun_computation is not None:
            return self._begun(instruction, op.begun_computation, operands)
        if op.start_done.completes:
            return self._completed(computation, instruction, operands)
        if op.is_collective:
            return self._collective(computation, instruction, operands)
        return self._of_operands(computation, instruction, operands)

    # --- instructions

    def _constant(self, computation: Computation, instruction: Instruction) -> Leaves:
        array = instruction.op.constant_array
        values = None
        if array is not None and is_small([instruction.shape]):
            values = (array,) * self.classes.devices
        return [Leaf(SAME, values, instruction, computation) for _ in instruction.shape.leaves()]

    def _of_operands(self, computation: Computation, instruction: Instruction, operands: list[Leaves]) -> Leaves:
        """Equal where all operands are equal, or where the values that are known are."""
        op = instruction.op
        leaves = [leaf for each in operands for leaf in each]
        labels, source = self._met(leaves)
        count = instruction.shape.leaf_count
        if op.role.is_device_id or op.effects is Effects.PURE:
            known = self._evaluated(computation, instruction, operands)
            if known is not None:
                found = self.classes.of(content(Known(value)) for value in known)
                return [Leaf(found, known, instruction, computation, source if found else None)]
        if not op.role.is_device_id and op.effects not in COMMUNICATING:
            return [Leaf(labels, None, instruction, computation, source) for _ in range(count)]
        return [Leaf(self.classes.own, None, instruction, computation) for _ in range(count)]

    def _met(self, leaves: Iterable[Leaf]) -> tuple[Labels, Leaf | None]:
        """The classes of all together, and the leaf that differs most."""
        labels, source = SAME, None
        for leaf in leaves:
            met = self.classes.meet(labels, leaf.labels)
            if met != labels or (source is None and leaf.labels != SAME):
                source = leaf
            labels = met
        return labels, source

    def _evaluated(
        self, computation: Computation, instruction: Instruction, operands: list[Leaves]
    ) -> tuple[Any, ...] | None:
        """An array of each device, where all operands are known."""
        shapes = tuple(o.shape for o in computation.operands(instruction))
        if not instruction.shape.is_array or not is_small((instruction.shape, *shapes)):
            return None
        if any(len(each) != 1 or each[0].values is None for each in operands):
            return None
        if not operands and not instruction.op.role.is_device_id:
            return None  # an iota: the same everywhere, and its elements decide nothing
        labels, _ = self._met(each[0] for each in operands)
        row = range(self.classes.devices) if instruction.op.role.is_device_id else self.classes.row(labels)
        made: dict[int, Any] = {}
        for device, label in enumerate(row):
            if label not in made:
                given = [cast(Any, each[0].values)[device] for each in operands]
                where = divmod(device, self._counts.partitions)
                try:
                    made[label] = np.asarray(evaluated(self._module, instruction, shapes, given, where))
                except LookupError:
                    return None
        return tuple(made[label] for label in row)

    def _loop(self, computation: Computation, instruction: Instruction, op: While, initial: Leaves) -> Leaves:
        state = initial
        while True:
            (more,) = self._called(op.condition, [state])
            body = self._called(op.body, [state])
            following = [self._after(now, new, more, instruction, computation) for now, new in zip(state, body)]
            if all(one.labels == other.labels and one.values is other.values for one, other in zip(state, following)):
                return following
            state = following

    def _after(self, now: Leaf, new: Leaf, more: Leaf, instruction: Instruction, computation: Computation) -> Leaf:
        """A leaf of the state after any number of iterations."""
        if new is now:
            return now
        labels = self.classes.meet(self.classes.meet(now.labels, new.labels), more.labels)
        differs = new if new.labels != SAME else more if more.labels != SAME else now
        return Leaf(labels, None, instruction, computation, differs if labels else None)

    def _branch(
        self, computation: Computation, instruction: Instruction, op: Conditional, operands: list[Leaves]
    ) -> Leaves:
        (selector,), *arguments = operands
        branches = [self._called(name, [argument]) for name, argument in zip(op.branches, arguments, strict=True)]
        found = []
        for leaves in zip(*branches, strict=True):
            labels, source = self._met((selector, *leaves))
            found.append(Leaf(labels, None, instruction, computation, source))
        return found

    def _begun(self, instruction: Instruction, name: str, operands: list[Leaves]) -> Leaves:
        """The operands, the result, and a context, which is nobody's value."""
        given = [leaf for leaves in operands for leaf in leaves]
        found = [*given, *self._called(name, operands)]
        return found + [Leaf(SAME)] * (instruction.shape.leaf_count - len(found))

    def _completed(self, computation: Computation, instruction: Instruction, operands: list[Leaves]) -> Leaves:
        """What the start of the pair has made."""
        count = instruction.shape.leaf_count
        start = computation[instruction.operands[0]]
        if not start.op.start_done.starts_pair or not (
            start.op.is_collective or start.op.begun_computation is not None
        ):
            copies = (
                []
                if start.op.is_collective or start.op.transfer.sends or start.op.transfer.receives
                else operands[0][:count]
            )
            if len(copies) == count and start.op.effects is Effects.PURE:
                return copies  # of a copy-start
            return [Leaf(self.classes.own, None, instruction, computation) for _ in range(count)]
        first = sum(o.shape.leaf_count for o in computation.operands(start))
        if start.op.begun_computation is None and start.shape.leaf_count == first:
            return operands[0]  # an all-reduce-start has nothing but the results
        return operands[0][first : first + count]

    # --- collectives

    def _collective(self, computation: Computation, instruction: Instruction, operands: list[Leaves]) -> Leaves:
        leaves = [leaf for each in operands for leaf in each]
        count, given = instruction.shape.leaf_count, len(leaves)
        if instruction.op.start_done.starts_pair and count > given:  # the operands, the results, and contexts
            made = [self._joined(computation, instruction, [leaf]) for leaf in leaves]
            return [*leaves, *made, *[Leaf(SAME)] * count][:count]
        sources = [[leaf] for leaf in leaves] if count == given else [leaves] * count
        return [self._joined(computation, instruction, each) for each in sources]

    def _joined(self, computation: Computation, instruction: Instruction, leaves: Leaves) -> Leaf:
        op, rows = instruction.op, [self.classes.row(leaf.labels) for leaf in leaves]
        _, source = self._met(leaves)
        try:
            keys = self._keys(op, rows)
        except DistxlaError:
            keys = None
        labels = self.classes.own if keys is None else self.classes.of(keys)
        return Leaf(labels, None, instruction, computation, source if labels else None)

    def _keys(self, op: Any, rows: Sequence[Sequence[int]]) -> list[Hashable] | None:
        """By device: what its result depends on."""
        counts = self._counts
        devices = range(self.classes.devices)
        if isinstance(op, CollectivePermute):
            sources = {target: source for source, target in op.device_pairs(counts)}
            return [tuple(row[sources[d]] for row in rows) if d in sources else None for d in devices]
        if not isinstance(op, GroupedCollective):
            return None
        keys: dict[int, Hashable] = {}
        for group in op.device_groups(counts):
            given = tuple(tuple(row[member] for member in group) for row in rows)
            keys |= {d: (given, 0 if op.round.same_for_all else place) for place, d in enumerate(group)}
        keys |= dict.fromkeys(op.silent_devices(counts), "zeros")
        return [keys[device] for device in devices]


def path_of(leaf: Leaf, differs: Callable[[Labels], bool]) -> list[Leaf]:
    """The leaves from the source of the difference to `leaf`, as far as `differs` holds for them."""
    found, seen = [leaf], {id(leaf)}
    while (source := found[-1].source) is not None and id(source) not in seen and differs(source.labels):
        found.append(source)
        seen.add(id(source))
    return found[::-1]


__all__ = ["SAME", "Classes", "Labels", "Leaf", "UniformityAnalysis", "path_of"]
