"""Builds a program's steps and decides which values share a buffer."""

from __future__ import annotations

from functools import cached_property

from distxla.compiler.plan.breadcrumbs import has_rounds
from distxla.compiler.plan.buffers import (
    TOKEN,
    Branch,
    Buffer,
    Communicate,
    Copy,
    Invoke,
    Kernel,
    Loop,
    MemoryRegion,
    PlanStep,
    SharedState,
    Swap,
)
from distxla.compiler.plan.parallel_copies import one_by_one
from distxla.compiler.plan.same_places import leaves_in_one_place, overwrites_as_it_reads
from distxla.errors import CompileError, UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.counts import UNKNOWN, Counts
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import NO_MEMORY, Lowering, RuleViolation
from distxla.lazy_dataclass import dataclass, field
from distxla.ops.call import OutlinedCall
from distxla.ops.constant import Constant
from distxla.ops.control_flow import Conditional, While
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.liveness import FOREVER, Value, Values, analyse, is_alias, overwritable
from distxla.program.options import InPlace

# Smaller results are copied to every member: that costs less than looking up where they are.
SHARED_BYTES = 4096
# Smaller states of a loop are copied at the end of an iteration.
SWAPPED_BYTES = 4096


@dataclass
class _Frame:
    """One place where a computation runs: its values' buffers and its steps so far.

    pinned: values that are computed straight into the buffer in which another instruction needs them.  owned: values
    whose buffer may be overwritten once they are dead.  started: by starts in flight, the values that they read and
    write.
    """

    computation: Computation
    values: Values
    buffers: dict[int, Buffer] = field(default_factory=dict)
    pinned: dict[int, Buffer] = field(default_factory=dict)
    owned: set[int] = field(default_factory=set)
    reserved: set[int] = field(default_factory=set)  # id() of the buffers that something is pinned to
    steps: list[PlanStep] = field(default_factory=list)
    started: dict[str, tuple[tuple[Buffer, ...], tuple[Buffer, ...]]] = field(default_factory=dict)
    # of the entry: value -> parameter that its kernel reads where it writes it
    same_places: dict[int, int] | None = None
    taken_over: frozenset[Value] | None = None  # values whose memory an instruction would like to overwrite

    def buffer(self, value: Value) -> Buffer:
        return TOKEN if value is None else self.buffers[value]

    @cached_property
    def _held(self) -> dict[int, list[int]]:
        """By id() of a buffer the leaves of the result that are in it, once all of them have one."""
        found: dict[int, list[int]] = {}
        for value in self.values.root:
            if value is not None:
                found.setdefault(id(self.buffers[value]), []).append(value)
        return found

    def sole_result(self, buffer: Buffer) -> Value:
        """The only leaf of the result that is in the buffer; None if there are several, or none."""
        held = self._held.get(id(buffer), ())
        return held[0] if len(held) == 1 else None


class Planner:
    """Walks the computations in execution order; `clock` numbers the steps.

    program: of the planner of the entry, if this one is of a routine.  calls: the routines that are executed.
    """

    def __init__(self, module: Module, counts: Counts = UNKNOWN, program: SharedState | None = None) -> None:
        self.module = module
        self.is_routine = program is not None
        self.program = SharedState() if program is None else program
        self.calls: set[int] = set()
        self.counts = counts
        self.groups: dict[tuple[tuple[int, ...], ...], int] = {}  # that share memory: number of their arena
        self.buffers: list[Buffer] = []
        self.clock = 0
        self._swapped: list[tuple[Buffer, Buffer]] = []

    def entry(self, in_place: InPlace) -> tuple[tuple[PlanStep, ...], InPlace, tuple[int, ...]]:
        """The steps of the entry computation, and which of the results may have their parameter's memory in a call:
        those that are computed over it as they are over the state of a loop. Such a parameter is copied to the result's
        place first (these results are the third value), unless it lies there, and only that place is used from then on.
        A parameter whose last reader is a kernel that reads where it writes stays where it is.
        """
        computation = self.module.entry_computation
        frame = self.frame(computation)
        frame.same_places = {}
        given: list[tuple[Instruction, Value]] = []  # by leaf
        for parameter, leaves in zip(computation.parameters, frame.values.parameters, strict=True):
            for shape, value in zip(parameter.shape.leaves(), leaves, strict=True):
                if value is not None:
                    frame.buffers[value] = Buffer(shape.byte_size, MemoryRegion.PARAMETER, len(given), parameter.name)
                given.append((parameter, value))
        root = computation.root_instruction
        targets = [
            Buffer(shape.byte_size, MemoryRegion.RESULT, k, root.name) if shape.is_array else TOKEN
            for k, shape in enumerate(root.shape.leaves())
        ]
        occupants: list[Value] = [None] * len(targets)
        kept, copied = [], []
        for k, leaf in in_place:
            parameter, value = given[leaf]
            if value is None or not self.is_computed_over(frame, frame.values.root[k], value):
                continue
            occupants[k] = value
            kept.append((k, leaf))
            if value not in frame.same_places.values():
                self.copy(frame, parameter, frame.buffers[value], targets[k])
                frame.buffers[value] = targets[k]
                frame.owned.add(value)
                copied.append(k)
        self.run(frame, targets, occupants)
        self.deliver(frame, targets, root)
        return tuple(frame.steps), tuple(kept), tuple(copied)

    def is_computed_over(self, frame: _Frame, result: Value, occupant: int) -> bool:
        """Whether the result can be computed where the parameter is, so that nothing is copied in the end."""
        values = frame.values
        while result is not None and result != occupant:
            position = values.defined[result]
            instruction, leaf = values.producer[result]
            if position < 0 or instruction.op.role.is_constant:
                return False
            source = self.in_place_source(frame, position, instruction, leaf)
            if source is None:
                return values.last_use[occupant] < position or self.is_read_alike(frame, result, occupant)
            result = source
        return result is not None

    # --- computations ---------------------------------------------------------------------------------------------

    def frame(self, computation: Computation) -> _Frame:
        return _Frame(computation, self.values(computation.name))

    def values(self, name: str) -> Values:
        values = self.program.values.get(name)
        if values is None:
            values = self.program.values[name] = analyse(self.module, self.module[name], self.values)
        return values

    def run(self, frame: _Frame, targets: list[Buffer], freed_by: list[Value]) -> None:
        """Add the steps of the computation; the root's leaves are computed into `targets` where that is safe. A target
        that is TOKEN leaves the choice open.

        freed_by: for each target the value that lives in it at the start, or None.
        """
        for value, target, occupant in zip(frame.values.root, targets, freed_by, strict=True):
            if value is not None and target is not TOKEN:
                self.pin(frame, value, target, occupant)
        frame.reserved = {id(buffer) for buffer in frame.pinned.values()}
        for position, instruction in enumerate(frame.computation):
            if instruction.op.role.is_parameter or is_alias(frame.computation, instruction):
                continue
            self.instruction(frame, position, instruction)

    def pin(self, frame: _Frame, value: int, target: Buffer, occupant: Value) -> None:
        """Ask for `value` in `target` if it is computed here after the last use of the value in there."""
        values = frame.values
        instruction, leaf = values.producer[value]
        position = values.defined[value]
        if position < 0 or value in frame.pinned or instruction.op.role.is_constant:
            return
        source = self.in_place_source(frame, position, instruction, leaf)
        is_needed = occupant is not None and values.last_use[occupant] >= position and source != occupant
        if is_needed and not self.is_read_alike(frame, value, occupant):
            return
        frame.pinned[value] = target
        if source is not None and source != occupant:
            self.pin(frame, source, target, occupant)

    def is_read_alike(self, frame: _Frame, value: int, occupant: Value) -> bool:
        """Whether `value` is computed where the occupant's elements are read last; a loop's state may change places."""
        if occupant is None or frame.same_places is None:
            return False
        if overwrites_as_it_reads(self.module, frame.computation, frame.values, value, occupant):
            frame.same_places[value] = occupant
        return frame.same_places.get(value) == occupant

    def in_place_source(self, frame: _Frame, position: int, instruction: Instruction, leaf: int) -> Value:
        """The operand value whose memory result leaf `leaf` takes over, since it has no later reader."""
        value = overwritable(frame.values, instruction, leaf)
        return value if value is not None and frame.values.last_use[value] == position else None

    def deliver(self, frame: _Frame, targets: list[Buffer], instruction: Instruction, *, swaps: bool = False) -> None:
        """Copy the root's leaves that are not in their targets yet, as if all at once. swaps: or exchange the places
        of both, where the root's leaf is needed for nothing else."""
        moves = []
        for value, target in zip(frame.values.root, targets, strict=True):
            source = frame.buffer(value)
            if source is not target and source is not TOKEN:
                moves.append((source, target))
        kept = {id(target) for target in targets}
        for source, target in one_by_one(moves, lambda source: self.new(source.size, instruction.name)):
            if swaps and id(source) not in kept and self.may_swap(frame, source, target):
                self.swap(frame, instruction, source, target)
            else:
                self.copy(frame, instruction, source, target)
        for target in targets:
            self.touch(target)

    # --- buffers --------------------------------------------------------------------------------------------------

    def new(self, size: int, owner: str) -> Buffer:
        buffer = Buffer(size, owner=owner)
        self.buffers.append(buffer)
        return buffer

    def touch(self, *buffers: Buffer) -> None:
        """The buffers' bytes matter now."""
        for buffer in buffers:
            if buffer.start < 0:
                buffer.start = self.clock
            buffer.end = self.clock

    def constant(self, instruction: Instruction, literal: Literal) -> Buffer:
        program = self.program
        buffer = program.by_literal.get(literal)
        if buffer is None:
            if literal.is_elided:
                raise CompileError(
                    f"the value of {instruction.name} is left out of the text ({{...}}), so it cannot be executed",
                    self.module.locate(instruction),
                )
            buffer = Buffer(literal.shape.byte_size, MemoryRegion.CONSTANT, len(program.constants), instruction.name)
            program.constants.append(literal)
            program.by_literal[literal] = buffer
        return buffer

    def copy(self, frame: _Frame, instruction: Instruction, source: Buffer, target: Buffer) -> None:
        self.clock += 1
        self.touch(source, target)
        if source.size:
            frame.steps.append(Copy(instruction, source, target))

    def may_swap(self, frame: _Frame, source: Buffer, target: Buffer) -> bool:
        """Whether a loop's new state may become its state by a change of places: `source`, which is no place of the
        state, holds nothing else. Not in routines, whose callers know where arguments and results are."""
        if self.is_routine:
            return False
        if not (source.region is target.region is MemoryRegion.ARENA and source.size == target.size >= SWAPPED_BYTES):
            return False
        held = frame.sole_result(source)
        return held is not None and held in frame.owned

    def swap(self, frame: _Frame, instruction: Instruction, source: Buffer, target: Buffer) -> None:
        self.clock += 1
        self.touch(source, target)
        source.swaps = target.swaps = True
        self._swapped.append((source, target))
        frame.steps.append(Swap(instruction, source, target))

    def join_lifetimes(self) -> None:
        """A value in one of two places that are exchanged may be in the other: both are kept for both."""
        changed = True
        while changed:
            changed = False
            for first, second in self._swapped:
                start, end = min(first.start, second.start), max(first.end, second.end)
                for buffer in (first, second):
                    changed = changed or (buffer.start, buffer.end) != (start, end)
                    buffer.start, buffer.end = start, end

    def will_swap(self, instruction: Instruction, leaf: int, size: int) -> bool:
        """Whether a leaf of a loop's state is computed while the old one is needed, so that it takes two places."""
        repeated = instruction.op.loop_body
        if repeated is None or size < SWAPPED_BYTES or self.is_routine:
            return False
        body = self.frame(self.module[repeated])
        values = body.values
        value, occupant = values.root[leaf], values.parameters[0][leaf]
        if value is None or occupant is None or values.root_counts[value] > 1 or values.defined[value] < 0:
            return False
        producer, number = values.producer[value]
        position = values.defined[value]
        if producer.op.role.is_constant or values.last_use[occupant] < position:
            return False
        return self.in_place_source(body, position, producer, number) != occupant

    def results(self, frame: _Frame, position: int, instruction: Instruction) -> tuple[Buffer, ...]:
        """Buffers for the instruction's result leaves: pinned, taken over from a dead operand, or new."""
        found: list[Buffer] = []
        for leaf, (value, shape) in enumerate(
            zip(frame.values.leaves[instruction.name], instruction.shape.leaves(), strict=True)
        ):
            if value is None:
                found.append(TOKEN)
                continue
            if frame.values.defined[value] < position:
                found.append(frame.buffers[value])  # a loop passes it on unchanged
                continue
            buffer = frame.pinned.get(value)
            in_result = buffer is not None and buffer.region is MemoryRegion.RESULT
            if in_result and self.will_swap(instruction, leaf, shape.byte_size):
                buffer = None
            if buffer is None:
                buffer = self.shared(frame, value, instruction, shape.byte_size)
            if buffer is None:
                source = self.in_place_source(frame, position, instruction, leaf)
                if source is not None and self.may_take_over(frame, source):
                    buffer = frame.buffers[source]
                else:
                    buffer = self.new(shape.byte_size, instruction.name)
            frame.buffers[value] = buffer
            frame.owned.add(value)
            found.append(buffer)
        return tuple(found)

    def shared(self, frame: _Frame, value: int, instruction: Instruction, size: int) -> Buffer | None:
        """A buffer that exists once for all members of a group, where the result is the same for all of them and
        it is not overwritten in place; else None."""
        op = instruction.op
        if not isinstance(op, GroupedCollective) or not op.round.same_for_all or op.start_done.starts_pair:
            return None
        if size < SHARED_BYTES or self.counts == UNKNOWN or value in self.taken_over(frame):
            return None
        try:
            groups = op.device_groups(self.counts)
        except RuleViolation:  # reported, with its place, when the instruction's routine is asked for
            return None
        if max(map(len, groups)) == 1:
            return None
        buffer = self.new(size, instruction.name)
        buffer.region = MemoryRegion.SHARED
        buffer.shared_arena = self.groups.setdefault(groups, len(self.groups))
        return buffer

    def taken_over(self, frame: _Frame) -> frozenset[Value]:
        """The values that an instruction overwrites in place, which saves it a copy."""
        if frame.taken_over is None:
            values = frame.values
            frame.taken_over = frozenset(
                self.in_place_source(frame, position, user, leaf)
                for position, user in enumerate(frame.computation)
                if not user.op.round.has_groups  # those need no copy either way
                for leaf, result in enumerate(values.leaves[user.name])
                if result is not None and values.defined[result] == position
            )
        return frame.taken_over

    def may_take_over(self, frame: _Frame, value: int) -> bool:
        """Whether the value's memory is this computation's to overwrite once the value is dead."""
        buffer = frame.buffers[value]
        return value in frame.owned and buffer.is_writable and id(buffer) not in frame.reserved

    # --- instructions ---------------------------------------------------------------------------------------------

    def instruction(self, frame: _Frame, position: int, instruction: Instruction) -> None:
        op = instruction.op
        if isinstance(op, Constant):
            for value, literal in zip(frame.values.leaves[instruction.name], op.literal.leaves, strict=True):
                if value is not None:
                    frame.buffers[value] = self.constant(instruction, literal)
            return
        operands = tuple(frame.buffer(v) for v in frame.values.operands(instruction))
        if isinstance(op, While):
            self.loop(frame, position, instruction, op)
        elif isinstance(op, Conditional):
            self.branch(frame, position, instruction, op)
        elif isinstance(op, OutlinedCall):
            self.invoke(frame, position, instruction, op)
        elif op.lowering in (Lowering.COMMUNICATION, Lowering.HOST):
            self.communicate(frame, position, instruction, operands)
        elif op.lowering in (Lowering.CALL, Lowering.KERNEL, Lowering.ELEMENT, Lowering.REDUCTION):
            results = self.results(frame, position, instruction)
            self.clock += 1
            self.touch(*operands, *results)
            same_places = leaves_in_one_place(frame.values, instruction, frame.same_places) if frame.same_places else ()
            frame.steps.append(Kernel(frame.computation, instruction, operands, results, same_places))
        else:
            raise UnsupportedOpError(
                f"this version cannot execute {op.opcode} ({instruction.name})", self.module.locate(instruction)
            )

    def communicate(self, frame: _Frame, position: int, instruction: Instruction, operands: tuple[Buffer, ...]) -> None:
        """All that a start reads and writes is in use until the instruction that completes it, copies included."""
        in_use: tuple[Buffer, ...] = ()
        if instruction.op.start_done.completes and instruction.operands[0] in frame.started:
            in_use, operands = frame.started.pop(instruction.operands[0])
        operands = self.in_device_memory(frame, instruction, operands)
        shapes = tuple(o.shape for o in frame.computation.operands(instruction))
        aliased = instruction.op.aliased_leaves(instruction.shape, shapes)
        if not (instruction.op.start_done.starts_pair or in_use):
            for leaf in aliased:
                if leaf is not None and leaf != NO_MEMORY:  # the result's leaf, if it was a constant
                    value = frame.values.operands(instruction)[leaf]
                    if value is not None:
                        frame.buffers[value] = operands[leaf]
        results = self.results(frame, position, instruction)
        if instruction.op.start_done.starts_pair:
            results = tuple(b for b, operand in zip(results, aliased, strict=True) if operand is None)
            frame.started[instruction.name] = operands, results
        self.clock += 1
        self.touch(*operands, *results, *in_use)
        frame.steps.append(Communicate(frame.computation, instruction, operands, results))

    def in_device_memory(
        self, frame: _Frame, instruction: Instruction, operands: tuple[Buffer, ...]
    ) -> tuple[Buffer, ...]:
        """The operands, constants replaced by copies that other devices can read."""
        found = []
        for operand in operands:
            if operand.region is MemoryRegion.CONSTANT:
                copied = self.new(operand.size, instruction.name)
                self.copy(frame, instruction, operand, copied)
                operand = copied
            found.append(operand)
        return tuple(found)

    def loop(self, frame: _Frame, position: int, instruction: Instruction, op: While) -> None:
        """State leaves have fixed buffers; the body computes the new state into them where it can, else copies."""
        initial = [frame.buffer(v) for v in frame.values.operands(instruction)]
        state = list(self.results(frame, position, instruction))
        for source, target in zip(initial, state, strict=True):
            if source is not target:
                self.copy(frame, instruction, source, target)
        self.clock += 1
        self.touch(*state)
        condition = self.called(op.condition, state, owned=False)
        self.run(condition, [TOKEN], [None])
        predicate = condition.buffer(condition.values.root[0])
        self.clock += 1
        self.touch(predicate)
        body = self.called(op.body, state, owned=True)
        body.owned -= {v for k in body.values.invariant if (v := body.values.parameters[0][k]) is not None}
        occupants = list(body.values.parameters[0])
        self.run(body, state, occupants)
        self.deliver(body, state, instruction, swaps=True)
        self.clock += 1
        self.touch(*state)
        frame.steps.append(Loop(instruction, tuple(condition.steps), predicate, tuple(body.steps)))

    def branch(self, frame: _Frame, position: int, instruction: Instruction, op: Conditional) -> None:
        selector, *arguments = (
            [frame.buffer(v) for v in frame.values.leaves[operand]] for operand in instruction.operands
        )
        results = list(self.results(frame, position, instruction))
        self.clock += 1
        self.touch(*selector, *results)
        for argument in arguments:
            self.touch(*argument)
        branches = []
        for name, argument in zip(op.branches, arguments, strict=True):
            called = self.called(name, argument, owned=False)
            self.run(called, results, [None] * len(results))
            self.deliver(called, results, instruction)
            branches.append(tuple(called.steps))
        # Whichever branch ran, all that was passed in and all results were needed until here.
        self.clock += 1
        self.touch(*results, *(buffer for argument in arguments for buffer in argument))
        by_predicate = frame.computation[instruction.operands[0]].shape.dtype.kind == "pred"
        frame.steps.append(Branch(instruction, selector[0], by_predicate, tuple(branches)))

    def invoke(self, frame: _Frame, position: int, instruction: Instruction, op: OutlinedCall) -> None:
        """Copy the arguments to where the routine takes them, and its results to where they are wanted."""
        number = self.program.numbers[op.to_apply]  # those that are called were planned before
        routine = self.program.routines[number]
        self.calls.add(number)
        for value, target in zip(frame.values.operands(instruction), routine.parameters, strict=True):
            if value is not None:
                self.copy(frame, instruction, frame.buffer(value), target)
        self.clock += 1
        frame.steps.append(Invoke(instruction, number, any(map(has_rounds, routine.steps))))
        for source, target in zip(routine.results, self.results(frame, position, instruction), strict=True):
            if target is not TOKEN:
                self.copy(frame, instruction, source, target)

    def called(self, name: str, argument: list[Buffer], *, owned: bool) -> _Frame:
        """A frame of a computation with one parameter, whose leaves are in `argument`."""
        frame = self.frame(self.module[name])
        for value, buffer in zip(frame.values.parameters[0], argument, strict=True):
            if value is not None:
                frame.buffers[value] = buffer
                if owned:
                    frame.owned.add(value)
        return frame


__all__ = ["FOREVER", "TOKEN", "Planner"]
