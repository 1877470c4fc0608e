"""Emits `distxla_entry`: the steps of a plan as one LLVM function.

    i32 distxla_entry(Context* context)

It reads the places of its memory from the context once, calls kernel functions, copies, loops and branches, and calls
`context->communicate[site]` for every communicating instruction. A status other than OK returns at once, and so does
the abort flag, which every loop looks at before an iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import reduce

from llvmlite import ir

from distxla.collectives.protocols.control_block import LOOP_DEPTHS, R_EVENTS, iterations_field
from distxla.collectives.transports.seam import ROUTINE_ARGUMENTS, CommunicationEmitter, GridSite
from distxla.compiler.entry.device_memory import DeviceMemory
from distxla.compiler.entry.fill_unwritten import emit_fill, written_anew
from distxla.compiler.entry.function_body import FunctionBody, has_runtime_offset
from distxla.compiler.entry.injection import InjectionPoints
from distxla.compiler.entry.sites import Sites
from distxla.compiler.entry.watching import Watching
from distxla.compiler.lower.constant_tables import planned_constant
from distxla.compiler.lower.grid.program import GridProgram, place_of
from distxla.compiler.lower.kernels import KernelFunction, declare_kernel, emit_kernel_function, kernel_key
from distxla.compiler.plan.breadcrumbs import has_breadcrumb, has_rounds, is_traced, kind_of, may_be_long
from distxla.compiler.plan.buffers import (
    Branch,
    Buffer,
    Communicate,
    Copy,
    Invoke,
    Kernel,
    Loop,
    MemoryRegion,
    Plan,
    PlanStep,
    Routine,
    Swap,
    Transfer,
)
from distxla.compiler.plan.transfers import ticket_buffer
from distxla.compiler.plan.watch_plan import WatchPlan
from distxla.emit.native_function import I1, I8, I32, I64, POINTER, load_function, memcpy
from distxla.errors import CompileError, DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.structure import Structure
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.collective_start_done import AsyncPart, async_part_of
from distxla.program.abi import ALIGNMENT, ENTRY_SYMBOL
from distxla.program.artifact import (
    CommunicatorSpec,
    EnclosingLoop,
    GridCode,
    ImportedKernel,
    InjectionPoint,
    LaunchedKernel,
    SharedArena,
    Site,
)
from distxla.program.options import CompileOptions
from distxla.targets.code import CodeModule, CodeTarget

Progress = Callable[[str], None]
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
    return _EntryEmitter(empty, module, plan, communication, counts, options, progress, text, grid, watch).run()


class _EntryEmitter:
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
        self.llvm_module, self.module, self.plan = llvm_module, module, plan
        self.grid = {} if grid is None else grid.kernels
        self.grid_rounds = {} if grid is None else grid.rounds
        self.communication = communication
        self.progress, self.traced = progress, options.traced
        self.points = InjectionPoints(llvm_module, module, plan, options.points, text)
        self.watching = Watching(llvm_module, watch)
        calls = llvm_module.target.grid_calls if self.grid else None
        self.device_memory = None if calls is None else DeviceMemory(llvm_module, calls)
        self.fills = options.filled
        self.structure = Structure(module) if grid is None else grid.structure
        self.kernels: dict[Hashable, KernelFunction] = {}
        self.imported: list[ImportedKernel] = []
        self.launched: dict[Hashable, tuple[LaunchedKernel, int]] = {}
        self.scratch_bytes = 0
        self.sites = Sites(llvm_module, module, communication, counts)
        self.numbered: list[tuple[Instruction, str]] = []
        self.constants: dict[int, ir.GlobalVariable] = {}
        self.body = FunctionBody(llvm_module, ENTRY_SYMBOL if calls is None else STEPS_SYMBOL, self.constant)
        self.routines: list[ir.Function] = []
        self.in_routine = False
        self.parts = 0
        self.loops: list[EnclosingLoop] = []  # that have rounds in them, around the current step

    def run(self) -> Entry:
        for routine in self.plan.routines:  # called ones precede their callers
            self.routines.append(self.routine(routine))
        self.watching.begin(self.body, is_filled=self.fills)
        self.steps(self.plan.steps)
        self.watching.end(self.body)
        if self.fills:
            self.fill_all()
        self.body.finish()
        grid = GridCode()
        if self.device_memory is not None:
            self.body.function.linkage = "internal"
            self.device_memory.emit_entry(ENTRY_SYMBOL, self.body)
            grid = GridCode(tuple(self.device_memory.launched), tuple(self.device_memory.launching))
        scratch = (self.scratch_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        arena = self.plan.arena_bytes + scratch
        steps, points, kernels = tuple(self.numbered), tuple(self.points.points), tuple(self.imported)
        sites, specs = tuple(self.sites.found), self.sites.communicators
        return Entry(self.llvm_module, sites, specs, arena, steps, self.plan.shared, points, kernels, grid)

    # --- functions --------------------------------------------------------------------------------------------------

    def function_of(self, name: str, steps: tuple[PlanStep, ...], *, looks: bool) -> ir.Function:
        """A function of its own for some steps. looks: whether it ends at once where the call has been ended."""
        caller, self.body = self.body, FunctionBody(self.llvm_module, name, self.constant)
        self.body.function.linkage = "internal"
        if looks:
            self.body.stop_if_aborted()
        self.steps(steps)
        self.body.finish()
        made, self.body = self.body.function, caller
        return made

    def routine(self, routine: Routine) -> ir.Function:
        """Loops in it are not counted in the record, where its callers count theirs."""
        self.in_routine = True
        name = re.sub(r"[^A-Za-z0-9_.]", "_", routine.name)
        made = self.function_of(f"routine_{len(self.routines)}_{name}", routine.steps, looks=True)
        self.in_routine = False
        return made

    def invoke(self, function: ir.Function) -> None:
        self.body.fail_unless_zero(self.body.builder.call(function, [self.body.context]))

    def constant(self, number: int) -> ir.GlobalVariable:
        """One variable for all functions that use it."""
        if number not in self.constants:
            self.constants[number] = planned_constant(self.llvm_module, self.plan.constants[number], number)
        return self.constants[number]

    # --- steps ------------------------------------------------------------------------------------------------------

    def steps(self, steps: tuple[PlanStep, ...]) -> None:
        """Emit these steps; long lists as functions of PART_STEPS each, since LLVM's time grows faster than linearly.

        Not where buffers have run-time offsets, which are local to a function.
        """
        if len(steps) > 2 * PART_STEPS and not any(map(has_runtime_offset, self.plan.buffers)):
            for first in range(0, len(steps), PART_STEPS):
                part = steps[first : first + PART_STEPS]
                self.parts += 1
                self.invoke(self.function_of(f"part_{self.parts}", part, looks=False))
            return
        for step in steps:
            instruction = step.instruction
            self.progress(instruction.name)
            try:
                self.step(step)
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

    def step(self, step: PlanStep) -> None:
        traced = self.traced and is_traced(step)
        number = len(self.numbered)
        if traced or has_breadcrumb(step) or self.points.is_at(step):
            self.body.builder.store(I32(number), self.body.breadcrumb)
            self.numbered.append((step.instruction, kind_of(step)))
        if may_be_long(step):
            self.body.builder.store(I32(1), self.body.busy_word)  # the next round looks at the clock
        self.points.before(self.body.builder, self.body.context, step)
        self.watching.before(self.body, step)
        if traced:
            self.traced_step(step, number)
        else:
            self.plain_step(step)
        self.watching.after(self.body, step)
        self.points.after(self.body.builder, self.body.context, step)

    def traced_step(self, step: PlanStep, number: int) -> None:
        """Emit a step and the event that tells when it ran."""
        begun = self.llvm_module.target.emit_cycles(self.body.builder)
        self.plain_step(step)
        depth = len(self.loops) + (1 if isinstance(step, Loop) and has_rounds(step) and not self.in_routine else 0)
        recorder = self.communication.emit_step_recorder(self.llvm_module)
        self.body.builder.call(recorder, [self.body.context, I32(number), begun, I64(iterations_field(depth))])

    def fill(self, buffers: Iterable[Buffer]) -> None:
        """Fill buffers, so that a read of bytes that the next step doesn't write shows."""
        for buffer in buffers:
            shared = buffer.region is MemoryRegion.SHARED  # of which the device's own place is filled
            offset = self.body.in_arena(buffer) if shared else self.body.offset(buffer)
            emit_fill(self.llvm_module, self.body.builder, self.body.own_memory, offset, buffer.size)

    def fill_all(self) -> None:
        """Fill the arena and the results before the first step, so that a read of bytes that no step writes shows."""
        leaves = enumerate(self.module.entry_computation.root_instruction.shape.leaves())
        given = {k for k, _ in self.plan.in_place}  # where the caller's arguments may be
        buffers = [
            Buffer(leaf.byte_size, MemoryRegion.RESULT, k) for k, leaf in leaves if leaf.is_array and k not in given
        ]
        for buffer in (*buffers, Buffer(self.plan.arena_bytes + self.scratch_bytes, MemoryRegion.ARENA, 0)):
            emit_fill(self.llvm_module, self.body.begin, self.body.own_memory, self.body.offset(buffer), buffer.size)

    def plain_step(self, step: PlanStep) -> None:
        if self.fills and isinstance(step, Kernel | Communicate):
            self.fill(written_anew(step))
        if isinstance(step, Kernel):
            self.kernel(step)
        elif isinstance(step, Transfer) or (isinstance(step, Copy) and step.on_device):
            assert self.device_memory is not None
            self.device_memory.emit(self.body, step)
        elif isinstance(step, Copy):
            self.copy(step)
        elif isinstance(step, Swap):
            self.swap(step)
        elif isinstance(step, Communicate):
            self.communicate(step)
        elif isinstance(step, Loop):
            self.loop(step)
        elif isinstance(step, Invoke):
            self.invoke(self.routines[step.routine])
        else:
            self.branch(step)

    def kernel(self, step: Kernel) -> None:
        if self.device_memory is not None and self.launch(step, self.device_memory):
            return
        kernel = self.kernel_function(step)
        self.scratch_bytes = max(self.scratch_bytes, kernel.scratch_bytes)
        leaves = [[b for b in each if b.region is not MemoryRegion.NONE] for each in (step.operands, step.results)]
        operands, results = ([self.body.pointer(buffer) for buffer in each] for each in leaves)
        scratch = Buffer(kernel.scratch_bytes, MemoryRegion.ARENA, self.plan.arena_bytes)
        if self.fills:
            self.fill((scratch,))
        arguments = [self.body.context, *operands, *results, self.body.pointer(scratch)]
        builder = self.body.builder
        if not step.alike or kernel.fails:  # the target's own kernels read all before they write
            returned = builder.call(kernel.function, arguments)
            if kernel.fails:
                self.body.fail_unless_zero(returned)
            self.watching.kernel_returns(kernel.watched, returned)
            return
        # where the caller has given an operand's place to a result, the others are copied to theirs
        pairs = [(operands[k], results[r], leaves[1][r].size) for k, r in step.alike]
        given = [builder.icmp_unsigned("==", source, target) for source, target, _ in pairs]
        with builder.if_else(reduce(builder.or_, given)) as (in_place, apart):
            with in_place:
                for (source, target, size), same in zip(pairs, given) if len(pairs) > 1 else ():
                    with builder.if_then(builder.not_(same)):
                        builder.call(memcpy(self.llvm_module), [target, source, I64(size), I1(0)])
                builder.call(self.kernel_function(step, in_place=True).function, arguments)
            with apart:
                builder.call(kernel.function, arguments)

    def launch(self, step: Kernel, device_memory: DeviceMemory) -> bool:
        """Run a kernel on the grid; whether it has a form for that."""
        key = kernel_key(self.structure, step)
        if key not in self.grid:
            return False
        kernel, first = self.launched_kernel(key, device_memory)
        if self.fills:
            device_memory.emit_fill(self.body, written_anew(step), kernel.scratch_bytes)
        device_memory.emit_launches(self.body, step, kernel, first, waits=self.traced)  # for the kernel's own time
        return True

    def launched_kernel(self, key: Hashable, device_memory: DeviceMemory) -> tuple[LaunchedKernel, int]:
        """A kernel of the grid, and the number of its first launch."""
        if key not in self.launched:
            made = self.grid[key]
            kernel = LaunchedKernel(made.launches, made.scratch_bytes, made.products)
            self.launched[key] = kernel, device_memory.add(kernel)
        return self.launched[key]

    def kernel_function(self, step: Kernel, *, in_place: bool = False) -> KernelFunction:
        """The function of the step's instruction; instructions that differ in names only share it."""
        key, computation, instruction = kernel_key(self.structure, step), step.computation, step.instruction
        key = (key, in_place) if in_place else key
        if key not in self.kernels:
            symbol = self.llvm_module.target.kernel_import(instruction, len(self.imported))
            if symbol is not None:
                operands = tuple(o.shape for o in computation.operands(instruction))
                self.imported.append(ImportedKernel(symbol, instruction, operands))
                self.kernels[key] = declare_kernel(self.llvm_module, self.imported[-1])
        if key not in self.kernels:
            name = re.sub(r"[^A-Za-z0-9_.]", "_", instruction.name)
            name = f"kernel_{len(self.kernels)}_{name}"
            watched = self.watching.looks_at(step)
            kernel = emit_kernel_function(self.llvm_module, self.module, step, name, in_place=in_place, watched=watched)
            kernel.function.linkage = "internal"
            if max((shape.size for shape in instruction.shape.leaves()), default=0) > 1:
                # A call costs nothing beside a loop; a copy of the loop in the entry costs time to compile.
                kernel.function.attributes.add("noinline")
            self.kernels[key] = kernel
        return self.kernels[key]

    def copy(self, step: Copy) -> None:
        function = memcpy(self.llvm_module)
        builder, target, source = self.body.builder, self.body.pointer(step.target), self.body.pointer(step.source)
        arguments = [target, source, I64(step.source.size), I1(0)]
        if step.source.region is MemoryRegion.PARAMETER and step.target.region is MemoryRegion.RESULT:
            with builder.if_then(builder.icmp_unsigned("!=", target, source)):  # the caller may have given one place
                builder.call(function, arguments)
        else:
            builder.call(function, arguments)

    def swap(self, step: Swap) -> None:
        first, second = self.body.place_of(step.first), self.body.place_of(step.second)
        offset = self.body.builder.load(first, typ=I64)
        self.body.builder.store(self.body.builder.load(second, typ=I64), first)
        self.body.builder.store(offset, second)

    def communicate(self, step: Communicate) -> None:
        site = self.sites.add(step, tuple(self.loops), self.grid_site(step))
        if step.on_device:
            operands, results = self.exported(step)
        else:
            operands, results = self.body.offset_table(step.operands), self.body.result_table(step.results)
        table = self.body.field("communicate")
        slot = self.body.builder.gep(table, [I64(site)], source_etype=POINTER)
        routine = load_function(self.body.builder, slot, I32, ROUTINE_ARGUMENTS, "routine")
        status = self.body.builder.call(routine, [self.body.context, I32(site), operands, results])
        self.body.fail_unless_zero(status)
        if step.instruction.op.lowering is not Lowering.HOST:
            self.count_event()

    def exported(self, step: Communicate) -> tuple[ir.Value, ir.Value]:
        """The tables of an on-device step's operands and results, for a round that finds all kernels before it done."""
        memory = self.device_memory
        assert memory is not None
        memory.emit_own_places(self.body, step.results)
        if self.fills:
            memory.emit_fill(self.body, written_anew(step), 0)
        if async_part_of(step.instruction.op) is not AsyncPart.DONE:  # which posts nothing
            memory.emit_wait(self.body)
        operands, results = (
            memory.emit_exported(self.body, side, ticket_buffer(step)) for side in (step.operands, step.results)
        )
        return operands, results

    def count_event(self) -> None:
        """The event that the flight recorder has begun for a site is over."""
        place = self.body.begin.gep(self.body.field("record"), [I64(R_EVENTS)], source_etype=I8)
        self.body.builder.store(self.body.builder.add(self.body.builder.load(place, typ=I64), I64(1)), place)

    def grid_site(self, step: Communicate) -> GridSite | None:
        """What the transport needs for rounds between the kernels' memories; None for a step of the host's."""
        if not step.on_device:
            return None
        assert self.device_memory is not None
        keys = self.grid_rounds[place_of(step)]
        return self.device_memory.grid_site(
            step.instruction, [self.launched_kernel(key, self.device_memory) for key in keys]
        )

    def loop(self, step: Loop) -> None:
        block, name = self.body.function.append_basic_block, step.instruction.name
        test, body, done = (block(f"{name}.{part}") for part in ("test", "body", "done"))
        count = self.begin_count(step) if has_rounds(step) and not self.in_routine else None
        self.watching.loop(self.body, step)
        self.body.builder.branch(test)
        self.body.builder.position_at_end(test)
        self.body.stop_if_aborted()
        self.steps(step.condition)
        again = self.body.builder.load(self.body.pointer(step.predicate), typ=I8)
        self.body.builder.cbranch(self.body.builder.icmp_unsigned("!=", again, I8(0)), body, done)
        self.body.builder.position_at_end(body)
        if count is not None:
            self.count(count)
        self.watching.iteration(self.body, step)
        self.steps(step.body)
        if count is not None:
            self.loops.pop()
        self.body.builder.branch(test)
        self.body.builder.position_at_end(done)

    def begin_count(self, step: Loop) -> ir.Value:
        """Where a loop with rounds in it counts its iterations: in the record, for reports."""
        instruction = step.instruction
        location = self.module.locate(instruction)
        holder = self.module.holder_of(instruction)
        self.loops.append(EnclosingLoop(instruction.name, "" if holder is None else holder.name, location))
        place = I64(iterations_field(len(self.loops)))
        word = self.body.begin.gep(self.body.field("record"), [place], source_etype=I8)
        if len(self.loops) < LOOP_DEPTHS:
            self.body.builder.store(I32(0), word)
        return word

    def count(self, word: ir.Value) -> None:
        """An iteration begins."""
        if len(self.loops) < LOOP_DEPTHS:
            self.body.builder.store(self.body.builder.add(self.body.builder.load(word, typ=I32), I32(1)), word)

    def branch(self, step: Branch) -> None:
        name = step.instruction.name
        done = self.body.function.append_basic_block(f"{name}.done")
        blocks = [self.body.function.append_basic_block(f"{name}.case{k}") for k in range(len(step.branches))]
        selector = self.body.pointer(step.selector)
        if step.by_predicate:
            holds = self.body.builder.load(selector, typ=I8)
            self.body.builder.cbranch(self.body.builder.icmp_unsigned("!=", holds, I8(0)), blocks[0], blocks[1])
        else:
            switch = self.body.builder.switch(self.body.builder.load(selector, typ=I32), blocks[-1])
            for k, block in enumerate(blocks[:-1]):
                switch.add_case(I32(k), block)
        for block, steps in zip(blocks, step.branches, strict=True):
            self.body.builder.position_at_end(block)
            self.steps(steps)
            self.body.builder.branch(done)
        self.body.builder.position_at_end(done)
