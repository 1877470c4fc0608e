"""Emits `distxla_entry`: the steps of a plan as one LLVM function.

    i32 distxla_entry(Context* context)

It reads the places of its memory from the context once, calls kernel functions, copies, loops and branches, and calls
`context->communicate[site]` for every communicating instruction. A status other than OK returns at once, and so does
the abort flag, which every loop looks at before an iteration.

A table has an emitter for each class of steps (`EntryEmitter.on_host`, `on_device`). What a program may ask for at
every step (a trace, faults, `--check nan`, filled memory) is a wrapper, which emits before and after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from llvmlite import ir

from distxla.collectives.transports.seam import CommunicationEmitter
from distxla.compiler.entry.control_flow import ControlFlow
from distxla.compiler.entry.fill_unwritten import fill_at_begin, filled
from distxla.compiler.entry.function_body import FunctionBody, has_runtime_offset
from distxla.compiler.entry.grid_steps import GridSteps
from distxla.compiler.entry.injection import InjectionPoints
from distxla.compiler.entry.kernel_calls import KernelCalls
from distxla.compiler.entry.sites import Sites
from distxla.compiler.entry.tracing import Tracing
from distxla.compiler.entry.watching import Watching
from distxla.compiler.lower.constant_tables import planned_constant
from distxla.compiler.lower.grid.program import GridProgram
from distxla.compiler.plan.buffers import (
    Branch,
    Communicate,
    Copy,
    Invoke,
    Kernel,
    Loop,
    MemoryRegion,
    Plan,
    PlanStep,
    Swap,
    Transfer,
)
from distxla.compiler.plan.watch_plan import WatchPlan
from distxla.emit.native_function import I1, I64, memcpy
from distxla.errors import CompileError, DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.structure import Structure
from distxla.lazy_dataclass import dataclass
from distxla.program.abi import ALIGNMENT, ENTRY_SYMBOL
from distxla.program.artifact import CommunicatorSpec, GridCode, ImportedKernel, InjectionPoint, SharedArena, Site
from distxla.program.options import CompileOptions
from distxla.targets.code import CodeModule, CodeTarget

Progress = Callable[[str], None]
Emit = Callable[[FunctionBody, Any], None]  # of a step of one class
Wrapper = Callable[[FunctionBody, PlanStep], AbstractContextManager[None]]
STEPS_SYMBOL = "distxla_steps"  # of the function of the plan's steps, where the entry does more than execute them
PART_STEPS = 1000  # of a function that executes steps


@dataclass(frozen=True)
class Entry:
    """The program in LLVM's terms. arena_bytes: the plan's and the kernels' scratch memory.  steps: instructions, and
    the kinds of their steps (StepOrigin.kind), by the number that the device's record holds while they run.
    shared: the plan's.  points: where faults can be injected.  kernels: those that the target runs itself.  grid: but
    for device_code."""

    llvm_module: ir.Module
    sites: tuple[Site, ...]
    communicators: tuple[CommunicatorSpec, ...]
    arena_bytes: int
    steps: tuple[tuple[Instruction, str], ...]
    shared: tuple[SharedArena, ...] = ()
    points: tuple[InjectionPoint, ...] = ()
    kernels: tuple[ImportedKernel, ...] = ()
    grid: GridCode = GridCode()


def emit_entry(
    module: Module,
    plan: Plan,
    communication: CommunicationEmitter,
    target: CodeTarget,
    counts: Counts,
    options: CompileOptions,
    *,
    progress: Progress = lambda text: None,
    text: Module | None = None,
    grid: GridProgram | None = None,
    watch: WatchPlan | None = None,
) -> Entry:
    """Emit the entry, its kernels, constants and communication routines.

    progress: called with the name of each instruction before it is lowered.  text: the module before the passes, which
    names the points of `options`, by default `module`.  grid: the kernels of a target that runs them on a grid.  watch:
    where the steps note their NaN and Inf, behind the plan's own arena.
    Raises the errors of the ops' emitters, with the instruction's place added; other errors as CompileError.
    """
    empty, text = CodeModule(module.name, target), text or module
    return EntryEmitter(empty, module, plan, communication, counts, options, progress, text, grid, watch).run()


class EntryEmitter:
    """Emits each step by the table of its class, with the wrappers of programs that ask for them around it.

    on_host, on_device: the tables, by the memory that the step's arrays are in.  wrappers: the outermost first.
    """

    def __init__(
        self,
        llvm_module: CodeModule,
        module: Module,
        plan: Plan,
        communication: CommunicationEmitter,
        counts: Counts,
        options: CompileOptions,
        progress: Progress,
        text: Module,
        grid: GridProgram | None,
        watch: WatchPlan | None,
    ) -> None:
        self.llvm_module, self.module, self.plan, self.progress = llvm_module, module, plan, progress
        self.fills = options.filled
        self.points = InjectionPoints(llvm_module, module, plan, options.points, text)
        self.watching = None if watch is None else Watching(llvm_module, watch)
        self.routines: list[ir.Function] = []
        self.flow = ControlFlow(module, self.steps, self.routines, self.watching)
        self.sites = Sites(llvm_module, module, communication, counts, self.flow.loops)
        structure = Structure(module) if grid is None else grid.structure
        self.kernels = KernelCalls(llvm_module, module, structure, plan, self.watching, fills=self.fills)
        self.on_host: dict[type, Emit] = {
            Kernel: self.kernels.emit,
            Copy: _emit_copy,
            Swap: _emit_swap,
            Communicate: self.sites.emit,
            Loop: self.flow.emit_loop,
            Branch: self.flow.emit_branch,
            Invoke: self.flow.emit_invoke,
        }
        calls = llvm_module.target.grid_calls
        self.grid_steps: GridSteps | None = None
        self.on_device: dict[type, Emit] = {}
        if calls is not None and grid is not None and grid.kernels:
            memory = self.grid_steps = GridSteps(calls, grid, self.sites, waits=options.traced, fills=self.fills)
            self.on_device = {
                Kernel: memory.emit_kernel,
                Copy: memory.emit_copy,
                Transfer: memory.emit_transfer,
                Communicate: memory.emit_communicate,
            }
        self.tracing = Tracing(communication, self.points.is_at, self.flow.depth, traced=options.traced)
        self.wrappers: list[Wrapper] = [self.tracing.breadcrumb]
        if options.points:
            self.wrappers.append(self.points.around)
        if self.watching is not None:
            self.wrappers.append(self.watching.around)
        if options.traced:
            self.wrappers.append(self.tracing.event)
        if self.fills:
            self.wrappers.append(filled)
        self.constants: dict[int, ir.GlobalVariable] = {}
        self.parts = 0

    def run(self) -> Entry:
        memory = self.grid_steps
        body = FunctionBody(self.llvm_module, ENTRY_SYMBOL if memory is None else STEPS_SYMBOL, self.constant)
        self.flow.in_routine = True
        for routine in self.plan.routines:  # called ones precede their callers
            name = re.sub(r"[^A-Za-z0-9_.]", "_", routine.name)
            self.routines.append(self.function_of(f"routine_{len(self.routines)}_{name}", routine.steps, looks=True))
        self.flow.in_routine = False
        if self.watching is not None:
            self.watching.begin(body, is_filled=self.fills)
        self.steps(body, self.plan.steps)
        if self.watching is not None:
            self.watching.end(body)
        if self.fills:
            result = self.module.entry_computation.root_instruction.shape
            fill_at_begin(body, self.plan, result, self.kernels.scratch_bytes)
        body.finish()
        if memory is not None:
            memory.emit_entry(ENTRY_SYMBOL, body)
        scratch = (self.kernels.scratch_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return Entry(
            self.llvm_module,
            tuple(self.sites.found),
            self.sites.communicators,
            self.plan.arena_bytes + scratch,
            tuple(self.tracing.numbered),
            self.plan.shared,
            tuple(self.points.points),
            tuple(self.kernels.imported),
            GridCode() if memory is None else GridCode(tuple(memory.launched), tuple(memory.launching)),
        )

    def function_of(self, name: str, steps: tuple[PlanStep, ...], *, looks: bool) -> ir.Function:
        """A function of its own for some steps. looks: whether it ends at once where the call has been ended."""
        body = FunctionBody(self.llvm_module, name, self.constant)
        body.function.linkage = "internal"
        if looks:
            body.stop_if_aborted()
        self.steps(body, steps)
        body.finish()
        return body.function

    def constant(self, number: int) -> ir.GlobalVariable:
        """One variable for all functions that use it."""
        if number not in self.constants:
            self.constants[number] = planned_constant(self.llvm_module, self.plan.constants[number], number)
        return self.constants[number]

    def steps(self, body: FunctionBody, steps: tuple[PlanStep, ...]) -> None:
        """Emit these steps; long lists as functions of PART_STEPS each, since LLVM's time grows faster than linearly.

        Not where buffers have run-time offsets, which are local to a function.
        """
        if len(steps) > 2 * PART_STEPS and not any(map(has_runtime_offset, self.plan.buffers)):
            for first in range(0, len(steps), PART_STEPS):
                part = steps[first : first + PART_STEPS]
                self.parts += 1
                body.call(self.function_of(f"part_{self.parts}", part, looks=False))
            return
        for step in steps:
            instruction = step.instruction
            self.progress(instruction.name)
            try:
                self.step(body, step)
            except DistxlaError as error:
                if error.location is None:
                    error.location = self.module.locate(instruction)
                    error.args = (error.message, error.location)
                raise
            except Exception as error:
                raise CompileError(
                    f"lowering {instruction.name} ({instruction.opcode}): {type(error).__name__}: {error}",
                    self.module.locate(instruction),
                ) from error

    def step(self, body: FunctionBody, step: PlanStep) -> None:
        on_device = self.grid_steps is not None and self.grid_steps.has_arrays_of(step)
        emit = (self.on_device if on_device else self.on_host)[type(step)]
        with ExitStack() as around:
            for wrapper in self.wrappers:
                around.enter_context(wrapper(body, step))
            emit(body, step)


def _emit_copy(body: FunctionBody, step: Copy) -> None:
    function = memcpy(body.builder.module)
    builder, target, source = body.builder, body.pointer(step.target), body.pointer(step.source)
    arguments = [target, source, I64(step.source.size), I1(0)]
    if step.source.region is MemoryRegion.PARAMETER and step.target.region is MemoryRegion.RESULT:
        with builder.if_then(builder.icmp_unsigned("!=", target, source)):  # the caller may have given one place
            builder.call(function, arguments)
    else:
        builder.call(function, arguments)


def _emit_swap(body: FunctionBody, step: Swap) -> None:
    first, second = body.place_of(step.first), body.place_of(step.second)
    offset = body.builder.load(first, typ=I64)
    body.builder.store(body.builder.load(second, typ=I64), first)
    body.builder.store(offset, second)
