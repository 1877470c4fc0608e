"""A module becomes a program: the pipeline, LLVM IR, object code, linked image. All in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from llvmlite import ir

from distxla import clock
from distxla.collectives.transports.seam import GridRound
from distxla.collectives.transports.shared_memory.emitter import SharedMemoryEmitter
from distxla.compiler.cache_folder import CacheFolder
from distxla.compiler.common_objects import common_object
from distxla.compiler.entry.entry import Entry, emit_entry
from distxla.compiler.lower.grid.program import GridProgram, emit_grid_program
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.plan.buffers import Communicate, Kernel, Plan
from distxla.compiler.plan.plan_program import PlanMemory, Planned
from distxla.compiler.plan.transfers import place_transfers
from distxla.compiler.plan.watch_plan import WatchPlan
from distxla.errors import ArgumentError, CompileError, DistxlaError, InternalError, UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.ops.support.collective_start_done import of_whole
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.program.artifact import CompiledProgram, DebugTables, StepOrigin
from distxla.program.options import CompileOptions, InPlace
from distxla.rewrites.step import Compilation, Step
from distxla.targets.code import CodeTarget
from distxla.targets.common_functions import separated
from distxla.targets.registry import native_target, target_named

Progress = Callable[[str], None]


def silent(text: str) -> None:
    return None


@dataclass
class StageClock:
    """Seconds by stage. begin: of the present one."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    begin: float = field(default_factory=clock.now)

    def lap(self, stage: str) -> None:
        """The stage ends here, and the next one begins."""
        now = clock.now()
        self.seconds[stage] += now - self.begin
        self.begin = now


SMALL_ROUND_BYTES = 256  # operands up to here are exchanged by the hosts, which may have to look at them, too


def optimised(module: Module) -> Module:
    """The module after all steps that rewrite it, in execution order."""
    return Pipeline().through("schedule").run(module).module


def compile_module(
    module: Module,
    counts: Counts,
    options: CompileOptions | None = None,
    *,
    progress: Progress = silent,
    files: CacheFolder | None = None,
) -> CompiledProgram:
    """Compile a verified module for all devices of the counts; one program for all of them.

    progress: called with an instruction or a stage before the work on it begins; bad input to LLVM can end the
    process (see server.py).  files: where code is kept that is the same in many programs (common_objects.py); None: in
    this process only.  Raises UnsupportedOpError for instructions that this version cannot execute, CompileError for
    failures of the compiler.
    """
    require_counts(counts)
    options = options or CompileOptions()
    stages = StageClock()
    compilation = planned(Pipeline.of(options, progress), module, counts, stages, options.in_place)
    code = code_target(options.target)
    grid = grid_program(compilation, code, progress, through_host=options.through_host)
    watch = _watch_plan(module, compilation, grid, options.in_place) if options.watched else None
    if watch is not None:
        compilation = replace(compilation, plan=watch.reserved)
    entry = lower(module, compilation, code, options, progress, grid=grid, watch=watch)
    stages.lap("emit")
    code.describe(entry.llvm_module)
    parts = separated(entry.llvm_module)
    parsed = parse_llvm(parts.program, code, progress)
    stages.lap("parse_llvm")
    progress("optimising LLVM IR")
    code.optimise(parsed)
    stages.lap("optimise")
    progress("emitting object code")
    obj = code.emit_object(parsed)
    stages.lap("object")
    with _explained():
        progress("compiling functions that programs share")
        common = [common_object(text, code, files) for text in parts.common]
    stages.lap("common")
    image = code.link([obj, *common])
    stages.lap("link")
    device_code = None
    if grid is not None:
        with _explained():
            progress("compiling kernels")
            device_code = code.finish_grid(grid.llvm_module)
        stages.lap("kernels")
    return CompiledProgram(
        name=module.name,
        image=image,
        counts=counts,
        parameters=tuple(p.shape for p in module.entry_computation.parameters),
        result=compilation.result,
        arena_bytes=entry.arena_bytes,
        sites=entry.sites,
        communicators=entry.communicators,
        shared=entry.shared,
        points=entry.points,
        target=code.name,
        in_place=compilation.plan.in_place,
        copied=compilation.plan.copied,
        kernels=entry.kernels,
        module=compilation.module if code.imports_kernels or options.watched else None,
        grid=replace(entry.grid, device_code=device_code),
        debug=DebugTables(
            timings={name: round(seconds, 6) for name, seconds in stages.seconds.items()},
            steps=_origins(module, entry.steps),
            watch=None if watch is None else replace(watch.report, origins=_places(module, compilation.module)),
        ),
    )


def _watch_plan(module: Module, compilation: Planned, grid: GridProgram | None, in_place: InPlace) -> WatchPlan:
    if has_dynamic_dimensions(module):
        raise UnsupportedOpError(
            "--check nan is not done for programs with dynamic dimensions, whose arrays are padded"
        )
    if grid is not None:
        raise UnsupportedOpError(
            "--check nan needs kernels of this processor: those of a GPU don't note what they make"
        )
    if in_place:
        raise InternalError("a watched program can't overwrite its parameters")
    return WatchPlan(compilation.module, compilation.plan)


def compile_alone(module: Module, counts: Counts, options: CompileOptions, progress: Progress) -> None:
    """Compile every kernel and every communicating instruction by itself, and drop the code.

    For finding which one LLVM cannot digest: progress is called with its name before, and then the process ends.
    """
    compilation = planned(Pipeline.of(options, silent), module, counts)
    plan, code = compilation.plan, code_target(options.target)
    options = replace(options, traced=False, points=())
    for step in plan.walk():
        if isinstance(step, Kernel | Communicate):
            alone = Plan((step,), plan.constants, plan.arena_bytes, plan.buffers)
            entry = emit_entry(compilation.module, alone, SharedMemoryEmitter(), code, counts, options)
            progress(step.instruction.name)
            parsed = code.parse(entry.llvm_module)
            code.optimise(parsed)
            code.emit_object(parsed)


def planned(
    pipeline: Pipeline,
    module: Module,
    counts: Counts,
    stages: StageClock | None = None,
    in_place: InPlace = (),
) -> Planned:
    """The pipeline's result for the module, with the plan of its memory."""
    stages = stages or StageClock()

    def lap(step: Step, _: Compilation) -> None:
        stages.lap("buffers" if isinstance(step, PlanMemory) else "passes")

    found = pipeline.through(PlanMemory.name).run(module, counts, after=lap, in_place=in_place)
    assert isinstance(found, Planned)  # by its last step
    return found


def lower(
    module: Module,
    compilation: Planned,
    code: CodeTarget,
    options: CompileOptions,
    progress: Progress = silent,
    *,
    grid: GridProgram | None = None,
    watch: WatchPlan | None = None,
) -> Entry:
    """LLVM IR of the planned program. module: as it was written, which the program's tables name.  grid: the kernels
    that run on a grid.  watch: as for `emit_entry`."""
    return emit_entry(
        compilation.module,
        compilation.plan if grid is None else with_transfers(compilation, grid),
        SharedMemoryEmitter(timed=options.traced),
        code,
        compilation.counts,
        options,
        progress=progress,
        text=module,
        grid=grid,
        watch=watch,
    )


def grid_program(
    compilation: Planned, code: CodeTarget, progress: Progress = silent, *, through_host: bool = False
) -> GridProgram | None:
    """The planned program's kernels for the target's grid; None where it has none. through_host: as of
    CompileOptions."""
    if code.grid is None:
        return None
    rounds = partial(grid_rounds, compilation) if code.communicates_on_grid and not through_host else None
    return emit_grid_program(compilation.module, compilation.plan, code.grid, progress, rounds)


def grid_rounds(compilation: Planned, step: Communicate) -> tuple[GridRound, ...] | None:
    """The rounds of a step between the kernels' memories; None for one that sends at most SMALL_ROUND_BYTES, and where
    the transport has none."""
    instruction = step.instruction
    if instruction.op.lowering is Lowering.HOST:
        return None
    operands = step.operand_leaves
    sent, _ = of_whole(instruction, operands)
    if sum(leaf.byte_size for leaf in sent if leaf.is_array) <= SMALL_ROUND_BYTES:
        return None
    return SharedMemoryEmitter().grid_rounds(instruction, operands, compilation.counts)


def with_transfers(compilation: Planned, grid: GridProgram) -> Plan:
    """The plan where those kernels have a memory of their own; without kernels nothing has to be copied."""
    if not grid.kernels:
        return compilation.plan
    return place_transfers(compilation.plan, grid.is_on_device)


def parse_llvm(module: ir.Module | str, code: CodeTarget, progress: Progress = silent) -> Any:
    """LLVM's own form of the program. CompileError with LLVM's message if it refuses the text."""
    with _explained():
        progress("parsing LLVM IR")
        return code.parse(module)


def code_target(name: str | None) -> CodeTarget:
    """The compiler's side of a target, by default of this machine's; CompileError where there is none."""
    return (native_target() if name is None else target_named(name)).code


def require_counts(counts: Counts) -> None:
    if counts.replicas < 1 or counts.partitions < 1:
        raise ArgumentError(f"a program needs at least one device, not {counts}")


def _origins(module: Module, steps: tuple[tuple[Instruction, str], ...]) -> tuple[StepOrigin, ...]:
    """The origin of each step in the module's text; by name in a module without text."""
    place = _place_in(module)
    return tuple(StepOrigin(i.name, i.opcode, *(place(i) or ("", "")), kind) for i, kind in steps)


def _places(module: Module, compiled: Module) -> dict[tuple[str, str], tuple[str, str]]:
    """Where the instructions of the compiled module come from in the module's text, by computation and name."""
    place = _place_in(module)
    return {(c.name, i.name): found for c in compiled.reached() for i in c if (found := place(i)) is not None}


def _place_in(module: Module) -> Callable[[Instruction], tuple[str, str] | None]:
    """Gives an instruction's place in the module's text."""
    places = {i.span: (c.name, i.name) for c in module.computations for i in c if i.span is not None}
    names = {i.name: (c.name, i.name) for c in module.computations for i in c}
    return lambda i: places.get(i.span) if i.span is not None else names.get(i.name)


@contextmanager
def _explained() -> Iterator[None]:
    """LLVM's complaints about our text as CompileError."""
    try:
        yield
    except DistxlaError:
        raise
    except Exception as error:
        raise CompileError(f"LLVM rejects the generated code: {error}") from error
