"""Emits `distxla_entry`: the steps of a plan as one LLVM function.

    i32 distxla_entry(Context* context)

It reads the places of its memory from the context once, calls kernel functions, copies, loops and branches, and calls
`context->communicate[site]` for every communicating instruction. A status other than OK returns at once, and so does
the poison word, which every loop looks at before an iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass

from llvmlite import ir

from distxla.codegen.abi import ALIGNMENT, COMMUNICATE_SYMBOL, ENTRY_SYMBOL, Context, Status
from distxla.codegen.buffers import Branch, Buffer, Communicate, Copy, Kernel, Loop, Plan, Region, Step, Swap, shares
from distxla.codegen.communication import CommunicationEmitter, LoadedRoutine
from distxla.codegen.injection import InjectionPoints
from distxla.codegen.kernels import KernelFunction, emit_kernel_function
from distxla.codegen.noted_steps import has_rounds, is_noted, is_traced, kind_of, may_be_long
from distxla.codegen.program import CommunicatorSpec, EnclosingLoop, HostRoutine, InjectionPoint, SharedArena, Site
from distxla.codegen.tables import planned_constant
from distxla.codegen.unwritten import emit_fill, written_anew
from distxla.collectives.control_block import H_POISON, LOOP_DEPTHS, R_BUSY, R_EVENTS, R_STEP, iterations_field
from distxla.collectives.signature import summary
from distxla.errors import CompileError, DistxlaError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.structure import Structure
from distxla.ir.unwritten import is_filled
from distxla.ops.custom_call import HostCall
from distxla.ops.op import Lowering

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Entry:
    """The program in LLVM's terms. arena_bytes: the plan's and the kernels' scratch memory.  steps: instructions, and
    what is done for them (StepOrigin.kind), by the number that the device's record holds meanwhile.
    shared: the plan's.  points: where faults can be injected."""

    llvm_module: ir.Module
    sites: tuple[Site, ...]
    communicators: tuple[CommunicatorSpec, ...]
    arena_bytes: int
    steps: tuple[tuple[Instruction, str], ...]
    shared: tuple[SharedArena, ...] = ()
    points: tuple[InjectionPoint, ...] = ()


def emit_entry(
    module: Module,
    plan: Plan,
    communication: CommunicationEmitter,
    *,
    replicas: int,
    partitions: int,
    progress: Progress = lambda text: None,
    traced: bool = False,
    points: Collection[str] = (),
    text: Module | None = None,
) -> Entry:
    """Emit the entry, its kernels, constants and communication routines.

    progress: told the name of each instruction before it is lowered.  traced: steps that compute, loops and branches
    record when they ran; they compute the same.  points: where faults can be injected (codegen/injection.py), by names
    of instructions of `text`, the module before the passes, `module` by default.
    Raises what the ops' emitters raise, with the instruction's place added; other errors as CompileError.
    """
    empty, text = ir.Module(module.name), text or module
    whole = _EntryEmitter(empty, module, plan, communication, replicas, partitions, progress, traced, points, text)
    return whole.run()


def _wanders(buffer: Buffer) -> bool:
    """Whether the buffer's offset is known at run time only."""
    return buffer.swaps or buffer.region is Region.SHARED


class _EntryEmitter:
    def __init__(
        self,
        llvm_module: ir.Module,
        module: Module,
        plan: Plan,
        communication: CommunicationEmitter,
        replicas: int,
        partitions: int,
        progress: Progress,
        traced: bool,
        points: Collection[str],
        text: Module,
    ) -> None:
        self.llvm_module, self.module, self.plan = llvm_module, module, plan
        self.communication, self.replicas, self.partitions = communication, replicas, partitions
        self.progress, self.traced = progress, traced
        self.points = InjectionPoints(llvm_module, module, plan, points, text)
        self.fills = is_filled()
        self.structure = Structure(module)
        self.kernels: dict[Hashable, KernelFunction] = {}
        self.scratch_bytes = 0
        self.sites: list[Site] = []
        self.numbered: list[tuple[Instruction, str]] = []
        self.communicators: dict[str, tuple[int, CommunicatorSpec]] = {}
        self.function = ir.Function(llvm_module, ir.FunctionType(I32, (POINTER,)), ENTRY_SYMBOL)
        # It only calls what is worth optimising, and it can be the longest function of all.
        self.function.attributes.add("noinline")
        self.function.attributes.add("optnone")
        self.context = self.function.args[0]
        # `begin` holds what is computed once a call: places and the offset tables of the communicating sites.
        self.begin = ir.IRBuilder(self.function.append_basic_block("begin"))
        self.builder = ir.IRBuilder(self.function.append_basic_block("steps"))
        self.first = self.builder.block
        self.failed = self.function.append_basic_block("failed")
        self.failures: list[tuple[ir.Value, ir.Block]] = []
        self.offsets: dict[tuple[Region, int], ir.Value] = {}
        self.pointers: dict[tuple[Region, int], ir.Value] = {}
        self.chosen: dict[int, ir.Value] = {}  # by id() of a buffer whose place changes: where its offset is kept
        self.fields: dict[str, ir.Value] = {}
        self.loops: list[EnclosingLoop] = []  # that have rounds in them, around the current step

    def run(self) -> Entry:
        self.own_memory = self.begin.load(
            self.begin.gep(
                self.field("memory", POINTER),
                [self.begin.zext(self.field("device", I32), I64)],
                source_etype=POINTER,
            ),
            typ=POINTER,
            name="own_memory",
        )
        self.poison = self.begin.gep(self.field("control", POINTER), [I64(H_POISON)], source_etype=I8)
        self.step_word = self.begin.gep(self.field("record", POINTER), [I64(R_STEP)], source_etype=I8)
        self.busy_word = self.begin.gep(self.field("record", POINTER), [I64(R_BUSY)], source_etype=I8)
        self.steps(self.plan.steps)
        if self.fills:
            self.fill_all()
        self.builder.ret(I32(Status.OK))
        self.begin.branch(self.first)
        self.emit_failure()
        scratch = (self.scratch_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        specs = tuple(spec for _, spec in sorted(self.communicators.values(), key=lambda found: found[0]))
        arena = self.plan.arena_bytes + scratch
        steps, points = tuple(self.numbered), tuple(self.points.points)
        return Entry(self.llvm_module, tuple(self.sites), specs, arena, steps, self.plan.shared, points)

    # --- places -----------------------------------------------------------------------------------------------------

    def field(self, name: str, llvm_type: ir.Type) -> ir.Value:
        """A field of the context, loaded once."""
        if name not in self.fields:
            offset = getattr(Context, name).offset
            address = self.begin.gep(self.context, [I64(offset)], source_etype=I8)
            self.fields[name] = self.begin.load(address, typ=llvm_type, name=name)
        return self.fields[name]

    def offset(self, buffer: Buffer) -> ir.Value:
        """The buffer's offset in the device's own memory, i64."""
        if _wanders(buffer):
            return self.builder.load(self.place_of(buffer), typ=I64)
        key = (buffer.region, buffer.number)
        found = self.offsets.get(key)
        if found is None:
            if buffer.region is Region.ARENA:
                found = self.in_arena(buffer)
            elif buffer.region in (Region.PARAMETER, Region.RESULT):
                table = self.field("parameters" if buffer.region is Region.PARAMETER else "results", POINTER)
                address = self.begin.gep(table, [I64(buffer.number)], source_etype=I64)
                found = self.begin.load(address, typ=I64, name=f"{buffer.region.value}_{buffer.number}")
            elif buffer.region is Region.NONE:
                found = I64(0)
            else:
                raise CompileError(f"a {buffer.region.value} has no place in device memory")
            self.offsets[key] = found
        return found

    def in_arena(self, buffer: Buffer) -> ir.Value:
        return self.begin.add(self.field("arena", I64), I64(buffer.number))

    def in_shared_arena(self, buffer: Buffer) -> ir.Value:
        """The offset of a buffer of Region.SHARED in its group's arena; 0 where this device has no such arena."""
        address = self.begin.gep(self.field("shared", POINTER), [I64(buffer.shared_arena)], source_etype=I64)
        base = self.begin.load(address, typ=I64, name=f"shared_{buffer.shared_arena}")
        offset = self.begin.add(base, I64(buffer.shared_number))
        return self.begin.select(self.begin.icmp_unsigned("==", base, I64(0)), I64(0), offset)

    def place_of(self, buffer: Buffer) -> ir.Value:
        """Where a buffer has its offset: of Region.SHARED, once the round that writes it is over."""
        place = self.chosen.get(id(buffer))
        if place is None:
            place = self.chosen[id(buffer)] = self.begin.alloca(I64)
            if buffer.swaps:
                self.begin.store(self.in_arena(buffer), place)
        return place

    def pointer(self, buffer: Buffer) -> ir.Value:
        """The buffer's address in this process."""
        if _wanders(buffer):
            return self.builder.gep(self.own_memory, [self.offset(buffer)], source_etype=I8)
        key = (buffer.region, buffer.number)
        found = self.pointers.get(key)
        if found is None:
            if buffer.region is Region.CONSTANT:
                found = planned_constant(self.llvm_module, self.plan.constants[buffer.number], buffer.number)
            elif buffer.region is Region.NONE:
                found = self.own_memory  # a token: never dereferenced
            else:
                found = self.begin.gep(self.own_memory, [self.offset(buffer)], source_etype=I8)
            self.pointers[key] = found
        return found

    # --- steps ------------------------------------------------------------------------------------------------------

    def steps(self, steps: tuple[Step, ...]) -> None:
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

    def step(self, step: Step) -> None:
        traced = self.traced and is_traced(step)
        number = len(self.numbered)
        if traced or is_noted(step) or self.points.is_at(step):
            self.builder.store(I32(number), self.step_word)
            self.numbered.append((step.instruction, kind_of(step)))
        if may_be_long(step):
            self.builder.store(I32(1), self.busy_word)  # the next round looks at the clock
        self.points.before(self.builder, self.context, step)
        if traced:
            self.traced_step(step, number)
        else:
            self.plain_step(step)
        self.points.after(self.builder, self.context, step)

    def traced_step(self, step: Step, number: int) -> None:
        """Emit a step and the event that tells when it ran."""
        clock = self.llvm_module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(I64, []))
        begun = self.builder.call(clock, [])
        self.plain_step(step)
        depth = len(self.loops) + (1 if isinstance(step, Loop) and has_rounds(step) else 0)
        recorder = self.communication.emit_step_recorder(self.llvm_module)
        self.builder.call(recorder, [self.context, I32(number), begun, I64(iterations_field(depth))])

    def fill(self, buffers: Iterable[Buffer]) -> None:
        """Let a read show of what the next step doesn't write."""
        for buffer in buffers:
            shared = buffer.region is Region.SHARED  # of which the device's own place is filled
            offset = self.in_arena(buffer) if shared else self.offset(buffer)
            emit_fill(self.llvm_module, self.builder, self.own_memory, offset, buffer.size)

    def fill_all(self) -> None:
        """The same of what no step writes, before the first one."""
        leaves = enumerate(self.module.entry_computation.root_instruction.shape.leaves())
        buffers = [Buffer(leaf.byte_size, Region.RESULT, k) for k, leaf in leaves if leaf.is_array]
        for buffer in (*buffers, Buffer(self.plan.arena_bytes + self.scratch_bytes, Region.ARENA, 0)):
            emit_fill(self.llvm_module, self.begin, self.own_memory, self.offset(buffer), buffer.size)

    def plain_step(self, step: Step) -> None:
        if self.fills and isinstance(step, Kernel | Communicate):
            self.fill(written_anew(step.operands, step.results))
        if isinstance(step, Kernel):
            self.kernel(step)
        elif isinstance(step, Copy):
            self.copy(step)
        elif isinstance(step, Swap):
            self.swap(step)
        elif isinstance(step, Communicate):
            self.communicate(step)
        elif isinstance(step, Loop):
            self.loop(step)
        else:
            self.branch(step)

    def kernel(self, step: Kernel) -> None:
        kernel = self.kernel_function(step.computation, step.instruction)
        self.scratch_bytes = max(self.scratch_bytes, kernel.scratch_bytes)
        arguments = [
            self.pointer(buffer) for buffer in (*step.operands, *step.results) if buffer.region is not Region.NONE
        ]
        scratch = Buffer(kernel.scratch_bytes, Region.ARENA, self.plan.arena_bytes)
        if self.fills:
            self.fill((scratch,))
        self.builder.call(kernel.function, [self.context, *arguments, self.pointer(scratch)])

    def kernel_function(self, computation: Computation, instruction: Instruction) -> KernelFunction:
        """The function of the instruction; instructions that differ in names only share it."""
        shapes = tuple(o.shape.without_layout() for o in computation.operands(instruction))
        op = instruction.op.rename_computations(lambda name: f"#{self.structure.number(name)}")
        key = (op, shapes, instruction.shape.without_layout(), instruction.op.code_annotations(instruction))
        if key not in self.kernels:
            name = re.sub(r"[^A-Za-z0-9_.]", "_", instruction.name)
            kernel = emit_kernel_function(
                self.llvm_module, self.module, computation, instruction, f"kernel_{len(self.kernels)}_{name}"
            )
            kernel.function.linkage = "internal"
            if max(shape.size for shape in instruction.shape.leaves()) > 1:
                # A call costs nothing beside a loop; a copy of the loop in the entry costs time to compile.
                kernel.function.attributes.add("noinline")
            self.kernels[key] = kernel
        return self.kernels[key]

    def copy(self, step: Copy) -> None:
        memcpy = self.llvm_module.globals.get("llvm.memcpy.p0.p0.i64")
        if memcpy is None:
            signature = ir.FunctionType(ir.VoidType(), (POINTER, POINTER, I64, I1))
            memcpy = ir.Function(self.llvm_module, signature, "llvm.memcpy.p0.p0.i64")
        self.builder.call(memcpy, [self.pointer(step.target), self.pointer(step.source), I64(step.source.size), I1(0)])

    def swap(self, step: Swap) -> None:
        first, second = self.place_of(step.first), self.place_of(step.second)
        offset = self.builder.load(first, typ=I64)
        self.builder.store(self.builder.load(second, typ=I64), first)
        self.builder.store(offset, second)

    def communicate(self, step: Communicate) -> None:
        site = self.site(step)
        operands, results = self.offset_table(step.operands), self.result_table(step.results)
        table = self.field("communicate", POINTER)
        slot = self.builder.gep(table, [I64(site)], source_etype=POINTER)
        routine = LoadedRoutine(self.builder.block, slot, "routine", typ=POINTER)
        self.builder._insert(routine)
        status = self.builder.call(routine, [self.context, I32(site), operands, results])
        self.fail_unless_zero(status)
        if step.instruction.op.lowering is not Lowering.HOST:
            self.count_event()

    def count_event(self) -> None:
        """What the flight recorder has begun to record of a site is over."""
        place = self.begin.gep(self.field("record", POINTER), [I64(R_EVENTS)], source_etype=I8)
        self.builder.store(self.builder.add(self.builder.load(place, typ=I64), I64(1)), place)

    def offset_table(self, buffers: tuple[Buffer, ...]) -> ir.Value:
        """A u64 array of offsets on the stack; what doesn't change is filled in once a call."""
        table = self.begin.alloca(I64, size=max(1, len(buffers)))
        for k, buffer in enumerate(buffers):
            place = self.begin.gep(table, [I64(k)], source_etype=I64)
            builder = self.builder if _wanders(buffer) else self.begin
            builder.store(self.offset(buffer), place)
        return table

    def result_table(self, buffers: tuple[Buffer, ...]) -> ir.Value:
        """The offset table of a site's results; it has a second half where one of them may be shared."""
        if not shares(buffers):
            return self.offset_table(buffers)
        table = self.begin.alloca(I64, size=2 * len(buffers))
        for k, buffer in enumerate(buffers):
            place = self.begin.gep(table, [I64(k)], source_etype=I64)
            elsewhere = self.begin.gep(table, [I64(len(buffers) + k)], source_etype=I64)
            if buffer.region is Region.SHARED:
                self.chosen[id(buffer)] = place
                self.builder.store(self.in_arena(buffer), place)  # every time: the routine writes there, too
                self.begin.store(self.in_shared_arena(buffer), elsewhere)
            else:
                builder = self.builder if _wanders(buffer) else self.begin
                builder.store(self.offset(buffer), place)
                self.begin.store(I64(0), elsewhere)
        return table

    def site(self, step: Communicate) -> int:
        """Number the site and add its routine."""
        instruction, index = step.instruction, len(self.sites)
        if instruction.op.lowering is Lowering.HOST:
            self.sites.append(self.host_site(step))
            return index
        operands = tuple(leaf for o in step.computation.operands(instruction) for leaf in o.shape.leaves())
        spec = self.communication.communicator(instruction, operands, self.replicas, self.partitions)
        number, spec = self.communicators.setdefault(spec.key, (len(self.communicators), spec))
        item = instruction.op.stream_item(
            instruction.shape, tuple(o.shape for o in step.computation.operands(instruction))
        )
        site = Site(
            index,
            instruction.name,
            instruction.opcode,
            step.computation.name,
            number,
            self.module.locate(instruction),
            item=item,
            shares=shares(step.results),
            facets=summary(self.module, instruction, operands),
            loops=tuple(self.loops),
        )
        self.sites.append(site)
        routine = self.communication.emit(self.llvm_module, self.module, site, spec, instruction, operands)
        if routine.name != COMMUNICATE_SYMBOL.format(site=index):
            raise CompileError(f"the routine of site {index} is called {routine.name}")
        return index

    def host_site(self, step: Communicate) -> Site:
        """A site whose routine the replica puts in place."""
        instruction = step.instruction
        if not isinstance(instruction.op, HostCall):
            raise CompileError(f"{instruction.name}: {instruction.opcode} calls no routine of the replica")
        operands = tuple(o.shape.without_layout() for o in step.computation.operands(instruction))
        routine = HostRoutine(instruction.op.custom_call_target, operands, instruction.shape.without_layout())
        return Site(
            len(self.sites),
            instruction.name,
            instruction.opcode,
            step.computation.name,
            -1,
            self.module.locate(instruction),
            routine,
        )

    def fail_unless_zero(self, status: ir.Value) -> None:
        go_on = self.function.append_basic_block("go_on")
        bad = self.builder.icmp_unsigned("!=", status, I32(Status.OK))
        self.failures.append((status, self.builder.block))
        self.builder.cbranch(bad, self.failed, go_on)
        self.builder.position_at_end(go_on)

    def emit_failure(self) -> None:
        builder = ir.IRBuilder(self.failed)
        if not self.failures:
            builder.unreachable()
            return
        status = builder.phi(I32)
        for value, block in self.failures:
            status.add_incoming(value, block)
        builder.ret(status)

    def loop(self, step: Loop) -> None:
        test, body, done = (
            self.function.append_basic_block(f"{step.instruction.name}.{part}") for part in ("test", "body", "done")
        )
        count = self.begin_count(step) if has_rounds(step) else None
        self.builder.branch(test)
        self.builder.position_at_end(test)
        poison = self.builder.load_atomic(self.poison, "monotonic", 4, typ=I32)  # another process writes it
        poisoned = self.builder.icmp_unsigned("!=", poison, I32(0))
        self.fail_unless_zero(self.builder.select(poisoned, I32(Status.RELEASED), I32(Status.OK)))
        self.steps(step.condition)
        again = self.builder.load(self.pointer(step.predicate), typ=I8)
        self.builder.cbranch(self.builder.icmp_unsigned("!=", again, I8(0)), body, done)
        self.builder.position_at_end(body)
        if count is not None:
            self.count(count)
        self.steps(step.body)
        if count is not None:
            self.loops.pop()
        self.builder.branch(test)
        self.builder.position_at_end(done)

    def begin_count(self, step: Loop) -> ir.Value:
        """Where a loop with rounds in it counts its iterations: in the record, for reports."""
        instruction = step.instruction
        location = self.module.locate(instruction)
        holder = self.module.holder_of(instruction)
        self.loops.append(EnclosingLoop(instruction.name, "" if holder is None else holder.name, location))
        place = I64(iterations_field(len(self.loops)))
        word = self.begin.gep(self.field("record", POINTER), [place], source_etype=I8)
        if len(self.loops) < LOOP_DEPTHS:
            self.builder.store(I32(0), word)
        return word

    def count(self, word: ir.Value) -> None:
        """An iteration begins."""
        if len(self.loops) < LOOP_DEPTHS:
            self.builder.store(self.builder.add(self.builder.load(word, typ=I32), I32(1)), word)

    def branch(self, step: Branch) -> None:
        name = step.instruction.name
        done = self.function.append_basic_block(f"{name}.done")
        blocks = [self.function.append_basic_block(f"{name}.case{k}") for k in range(len(step.branches))]
        selector = self.pointer(step.selector)
        if step.by_predicate:
            holds = self.builder.load(selector, typ=I8)
            self.builder.cbranch(self.builder.icmp_unsigned("!=", holds, I8(0)), blocks[0], blocks[1])
        else:
            switch = self.builder.switch(self.builder.load(selector, typ=I32), blocks[-1])
            for k, block in enumerate(blocks[:-1]):
                switch.add_case(I32(k), block)
        for block, steps in zip(blocks, step.branches, strict=True):
            self.builder.position_at_end(block)
            self.steps(steps)
            self.builder.branch(done)
        self.builder.position_at_end(done)
