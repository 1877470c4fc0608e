"""What a program watches that was compiled for `--check nan`: its steps, arrays and loops, and where it notes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from distxla.compiler.plan.buffers import (
    Branch,
    Buffer,
    Communicate,
    Copy,
    Kernel,
    Loop,
    MemoryRegion,
    Plan,
    PlanStep,
    Swap,
)
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.constant import Constant
from distxla.program.abi import ALIGNMENT
from distxla.program.watch_report import ENTRY_WORDS, HEADER_WORDS, INF, NAN, WatchedStep, WatchReport

SNAPSHOT_BYTES = 64 << 20  # of a device's memory; steps that need more have one place together


def may_be_unfinite(shape: Shape) -> bool:
    """Whether elements of this type can be NaN or Inf."""
    return shape.is_array and shape.dtype.has_nan


def _moves(instruction: Instruction) -> bool:
    op = instruction.op
    if isinstance(op, Constant):
        return not any(map(found_in, op.literal.leaves))
    if op.role.is_parameter or op.lowering in (Lowering.ALIAS, Lowering.CALL):
        return True
    if op.elements.only_moves is not None:
        return op.elements.only_moves
    return op.lowering is Lowering.ELEMENT and not op.elements.is_elementwise


def found_in(literal: Literal) -> int:
    """NAN and INF, as an array that is constant has them."""
    if literal.array is None or not may_be_unfinite(literal.shape) or not literal.array.size:
        return 0
    wide = literal.array.astype(np.complex128 if literal.shape.dtype.is_complex else np.float64)
    return NAN * bool(np.isnan(wide).any()) | INF * bool(np.isinf(wide).any())


@dataclass(frozen=True)
class WatchedLeaf:
    """A leaf that a step writes or reads: its place among the step's buffers, and its shape."""

    buffer: Buffer
    shape: Shape


class WatchPlan:
    """numbers: of steps, by id(step); shadows: of buffers, by id(buffer); loops: by id(step); parameters: of leaves, by
    shadow; constants: number and what it has, by shadow; results: by leaf.  bytes: of the arena that
    the report takes, with its snapshots; it begins behind the plan's own."""

    def __init__(self, module: Module, plan: Plan) -> None:
        self._module, self._plan = module, plan
        self.numbers: dict[int, int] = {}
        self.shadows: dict[int, int] = {}
        self.loops: dict[int, int] = {}
        self.constants: dict[int, tuple[int, int]] = {}  # by shadow: number of the constant, what it has
        self._steps: list[WatchedStep] = []
        self._loop_names: list[str] = []
        self._constant_names: list[str] = []
        self._position = 0
        for routine in plan.routines:
            self._walk(routine.steps, (), ())
        self._walk(plan.steps, (), ())
        self.parameters = self._parameters()
        self.results = self._results()
        entry = module.entry_computation
        words = HEADER_WORDS + len(self._loop_names)
        shadows = (words + 1) // 2 * 2
        entries = shadows + 2 * len(self.shadows)
        words = entries + ENTRY_WORDS * len(self._steps)
        self.bytes = self._place_snapshots(plan.arena_bytes, 4 * words)
        self.report = WatchReport(
            plan.arena_bytes,
            words,
            tuple(self._steps),
            tuple(self._loop_names),
            shadows,
            entries,
            {k: self.shadows[id(leaf.buffer)] for k, leaf in self.results.items()},
            sum(p.shape.leaf_count for p in entry.parameters),
            tuple(self._constant_names),
        )

    @property
    def reserved(self) -> Plan:
        """The plan with an arena that has room for the report."""
        return replace(self._plan, arena_bytes=self._plan.arena_bytes + self.bytes)

    # --- the program

    def _walk(self, steps: Iterable[PlanStep], loops: tuple[int, ...], order: tuple[int, ...]) -> None:
        for step in steps:
            self._position += 1
            self._shadows_of(step)
            if isinstance(step, Kernel | Communicate):
                self._step(step, loops, (*order, self._position))
            elif isinstance(step, Loop):
                number = self.loops[id(step)] = len(self._loop_names)
                self._loop_names.append(step.instruction.name)
                self._walk((*step.condition, *step.body), (*loops, number), (*order, self._position))
            elif isinstance(step, Branch):
                for branch in step.branches:
                    self._walk(branch, loops, order)

    def _shadows_of(self, step: PlanStep) -> None:
        if isinstance(step, Kernel | Communicate):
            buffers: tuple[Buffer, ...] = (*step.operands, *step.results)
        elif isinstance(step, Copy):
            buffers = step.source, step.target
        else:
            buffers = (step.first, step.second) if isinstance(step, Swap) else ()
        for buffer in buffers:
            self._shadow(buffer)

    def _shadow(self, buffer: Buffer) -> None:
        if buffer.region is MemoryRegion.NONE or id(buffer) in self.shadows:
            return
        shadow = self.shadows[id(buffer)] = len(self.shadows)
        if buffer.region is MemoryRegion.CONSTANT and (kinds := found_in(self._plan.constants[buffer.number])):
            self.constants[shadow] = len(self._constant_names), kinds
            self._constant_names.append(buffer.owner)

    def _step(self, step: Kernel | Communicate, loops: tuple[int, ...], order: tuple[int, ...]) -> None:
        if not self.written(step) and not (isinstance(step, Communicate) and self.read(step)):
            return
        instruction = step.instruction
        fused = ""
        if isinstance(step, Kernel) and instruction.op.lowering is Lowering.CALL:
            (fused,) = instruction.op.called_computations
        operands = tuple(leaf for o in step.computation.operands(instruction) for leaf in o.shape.leaves())
        self.numbers[id(step)] = len(self._steps)
        self._steps.append(
            WatchedStep(
                instruction.name,
                instruction.opcode,
                step.computation.name,
                fused,
                loops,
                order,
                operands if fused else (),
                communicates=isinstance(step, Communicate) and instruction.op.lowering is not Lowering.HOST,
            )
        )

    def written(self, step: Kernel | Communicate) -> list[WatchedLeaf]:
        """The leaves of the result that may have NaN or Inf once the step is over."""
        if step.instruction.op.start_done.starts_pair and isinstance(step, Communicate):
            return []
        return self._watched(step.results, step.instruction.shape.leaves())

    def read(self, step: Kernel | Communicate) -> list[WatchedLeaf]:
        """The leaves of the operands that may have NaN or Inf."""
        if step.instruction.op.start_done.completes:  # its operands are its start's results
            return []
        operands = step.computation.operands(step.instruction)
        leaves = [leaf for operand in operands for leaf in operand.shape.leaves()]
        return self._watched(step.operands, leaves)

    def passes_on(self, step: Kernel | Communicate) -> bool:
        """Whether the step only moves elements, so that what its operands have tells what its results have."""
        if not isinstance(step, Kernel):
            return False
        operands = [leaf.shape.dtype for leaf in self.read(step)]
        if any(leaf.shape.dtype not in operands for leaf in self.written(step)):
            return False
        inside: Iterable[Instruction] = (step.instruction,)
        if step.instruction.op.lowering is Lowering.CALL:
            inside = (i for c in self._module.reached(*step.instruction.op.called_computations) for i in c)
        return all(map(_moves, inside))

    def shows_parameters(self, step: Kernel) -> bool:
        """Whether results of the program would have to be looked through because this step moves a parameter there."""
        return any(leaf.buffer.region is MemoryRegion.PARAMETER for leaf in self.read(step)) and any(
            leaf.buffer.region is MemoryRegion.RESULT for leaf in self.written(step)
        )

    def _watched(self, buffers: tuple[Buffer, ...], shapes: Iterable[Shape]) -> list[WatchedLeaf]:
        shapes = list(shapes)
        if len(shapes) != len(buffers):
            return []
        return [WatchedLeaf(b, s) for b, s in zip(buffers, shapes) if may_be_unfinite(s) and b.size]

    def _parameters(self) -> dict[int, int]:
        """Number of the leaf by shadow, of those that a step reads and that may have any."""
        leaves = [leaf for p in self._module.entry_computation.parameters for leaf in p.shape.leaves()]
        buffers = {self.shadows[id(b)]: b.number for b in self._buffers() if b.region is MemoryRegion.PARAMETER}
        return {shadow: number for shadow, number in buffers.items() if may_be_unfinite(leaves[number])}

    def _results(self) -> dict[int, WatchedLeaf]:
        """The leaves of the result that may have any, by number."""
        known = {b.number: b for b in self._buffers() if b.region is MemoryRegion.RESULT}
        leaves = enumerate(self._module.entry_computation.root_instruction.shape.leaves())
        return {k: WatchedLeaf(known[k], leaf) for k, leaf in leaves if k in known and may_be_unfinite(leaf)}

    def _buffers(self) -> Iterator[Buffer]:
        """All that have a shadow."""
        for step in self._plan.walk():
            if isinstance(step, Kernel | Communicate):
                yield from (b for b in (*step.operands, *step.results) if id(b) in self.shadows)
            elif isinstance(step, Copy):
                yield from (step.source, step.target)

    # --- snapshots

    def _place_snapshots(self, begin: int, size: int) -> int:
        """Places behind the report for the operands of fusions; the bytes of all."""
        needs = {k: sum(map(aligned, s.operands)) for k, s in enumerate(self._steps) if s.fused and self._is_mixed(s)}
        small: list[int] = []
        total = 0
        for number, need in sorted(needs.items(), key=lambda item: item[1]):
            if total + need <= SNAPSHOT_BYTES:
                small.append(number)
                total += need
        end = begin + _up(size)
        for number in small:
            self._steps[number] = replace(self._steps[number], snapshot=end)
            end += needs.pop(number)
        for number in needs:
            self._steps[number] = replace(self._steps[number], snapshot=end, shares_snapshot=True)
        return end + max(needs.values(), default=0) - begin

    def _is_mixed(self, step: WatchedStep) -> bool:
        """Whether several instructions of a fusion may have made a value."""
        inside = [
            i for i in self._module[step.fused] if not i.op.role.is_parameter and i.op.lowering is not Lowering.ALIAS
        ]
        return len(inside) > 1


def aligned(shape: Shape) -> int:
    """Bytes of a leaf in a snapshot."""
    return _up(shape.byte_size) if shape.is_array else 0


def _up(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


__all__ = ["WatchPlan", "WatchedLeaf", "aligned", "found_in", "may_be_unfinite"]
