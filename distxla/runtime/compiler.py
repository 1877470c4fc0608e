"""A module becomes a program: passes, schedule, buffers, LLVM, object code, linked image. All in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distxla.codegen.program import CompiledProgram, StepOrigin
from distxla.errors import ArgumentError, CompileError, DistxlaError, UnsupportedOpError
from distxla.ir.module import Module

if TYPE_CHECKING:
    from distxla.codegen.entry import Entry
    from distxla.ir.instruction import Instruction

STAGES = ("hlo", "schedule", "buffers", "llvm", "asm", "object")
Progress = Callable[[str], None]


def _silent(text: str) -> None:
    return None


@dataclass
class _Clock:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def optimised(module: Module, progress: Progress = _silent) -> Module:
    """The module after all passes, in execution order: stage `schedule`."""
    from distxla.scheduler.linear import schedule

    passed = after_passes(module, progress)
    progress("the order of execution")
    return schedule(passed)


def after_passes(module: Module, progress: Progress = _silent) -> Module:
    """The module after all passes: stage `hlo`.

    Asynchronous pairs are drawn apart before loops are joined; fusion leaves between them what stands there.
    """
    from distxla.passes.fuse import Fuse
    from distxla.passes.pipeline import Pipeline, standard_passes
    from distxla.scheduler.linear import overlapped

    passes = standard_passes()
    first = next(k for k, step in enumerate(passes) if isinstance(step, Fuse))
    early = Pipeline(passes[:first], progress=progress).run(module)
    progress("the order of execution")
    return Pipeline(passes[first:], progress=progress).run(overlapped(early))


def compile_module(
    module: Module,
    *,
    replicas: int,
    partitions: int,
    progress: Progress = _silent,
    traced: bool = False,
    points: tuple[str, ...] = (),
) -> CompiledProgram:
    """Compile a verified module for replicas x partitions devices; one program for all of them.

    progress: told what is worked on, an instruction or a stage, before it begins; bad input to LLVM can end the
    process (see compile_server).  traced: its steps record when they ran.  points: instructions at which faults
    can be injected (codegen/injection.py).  Raises UnsupportedOpError for what this
    version cannot execute, CompileError for failures of the compiler.
    """
    from distxla.codegen.link import link
    from distxla.passes.pipeline import result_shape

    clock = _Clock()
    _check_counts(module, replicas, partitions)
    entry = _lower(module, replicas, partitions, progress, clock, traced=traced, points=points)
    from distxla.codegen.backends import cpu

    with _explained(), clock.stage("parse_llvm"):
        progress("parsing LLVM IR")
        parsed = cpu.parse(entry.llvm_module)
    with clock.stage("optimise"):
        progress("optimising LLVM IR")
        cpu.optimise(parsed)
    with clock.stage("object"):
        progress("emitting object code")
        obj = cpu.emit_object(parsed)
    with clock.stage("link"):
        image = link(obj)
    return CompiledProgram(
        name=module.name,
        image=image.data,
        symbols=image.symbols,
        imports=image.imports,
        imports_offset=image.imports_offset,
        code_bytes=image.code_bytes,
        replicas=replicas,
        partitions=partitions,
        parameters=tuple(p.shape for p in module.entry_computation.parameters),
        result=result_shape(module),
        arena_bytes=entry.arena_bytes,
        sites=entry.sites,
        communicators=entry.communicators,
        timings={name: round(seconds, 6) for name, seconds in clock.seconds.items()},
        steps=_origins(module, entry.steps),
        shared=entry.shared,
        traced=traced,
        points=entry.points,
    )


def _origins(module: Module, steps: tuple[tuple[Instruction, str], ...]) -> tuple[StepOrigin, ...]:
    """Where in the module's text each step comes from; by name in a module without text."""
    places = {i.span: (c.name, i.name) for c in module.computations for i in c if i.span is not None}
    names = {i.name: (c.name, i.name) for c in module.computations for i in c}
    found = []
    for i, kind in steps:
        place = places.get(i.span) if i.span is not None else names.get(i.name)
        found.append(StepOrigin(i.name, i.opcode, *(place or ("", "")), kind))
    return tuple(found)


def emit(module: Module, stage: str, *, replicas: int, partitions: int, progress: Progress = _silent) -> str | bytes:
    """What the compiler has after a stage: one of STAGES, as text (object: the ELF file).

    hlo: after the passes; schedule: in execution order, with the memory of each step; llvm: optimised.  Raises what
    compile_module raises, ArgumentError for a stage that is none, UnsupportedOpError for ptx.
    """
    from distxla.passes.pairs_as_written import as_written
    from distxla.text.printer import print_module

    if stage == "ptx":
        raise UnsupportedOpError("this version generates no PTX: it has no GPU backend")
    if stage not in STAGES:
        raise ArgumentError(f"no stage {stage!r}; the stages are {', '.join(STAGES)}")
    _check_counts(module, replicas, partitions)
    if stage == "hlo":
        return print_module(as_written(after_passes(module, progress)))
    if stage == "schedule":
        from distxla.scheduler.program_order.listing import print_schedule

        scheduled = optimised(module, progress)
        return print_schedule(scheduled, as_written(scheduled))
    if stage == "buffers":
        from distxla.codegen.planner import plan

        return plan(optimised(module, progress), replicas=replicas, partitions=partitions).dump()
    entry = _lower(module, replicas, partitions, progress, _Clock())
    from distxla.codegen.backends import cpu

    with _explained():
        progress("parsing LLVM IR")
        parsed = cpu.parse(entry.llvm_module)
    progress("optimising LLVM IR")
    cpu.optimise(parsed)
    if stage == "llvm":
        return str(parsed)
    progress("emitting object code")
    return cpu.emit_assembly(parsed) if stage == "asm" else cpu.emit_object(parsed)


def compile_alone(module: Module, replicas: int, partitions: int, progress: Progress) -> None:
    """Compile every kernel and every communicating instruction by itself, and drop the code.

    For finding which one LLVM cannot digest: progress is told its name before, and then the process ends.
    """
    from distxla.codegen.backends import cpu
    from distxla.codegen.buffers import Communicate, Kernel, Plan
    from distxla.codegen.entry import emit_entry
    from distxla.codegen.planner import plan
    from distxla.collectives.transports.shared_memory import SharedMemory

    scheduled = optimised(module)
    planned = plan(scheduled, replicas=replicas, partitions=partitions)
    for step in planned.walk():
        if isinstance(step, Kernel | Communicate):
            alone = Plan((step,), planned.constants, planned.arena_bytes, planned.buffers)
            entry = emit_entry(scheduled, alone, SharedMemory(), replicas=replicas, partitions=partitions)
            progress(step.instruction.name)
            cpu.compile_object(entry.llvm_module)


def _lower(
    module: Module,
    replicas: int,
    partitions: int,
    progress: Progress,
    clock: _Clock,
    *,
    traced: bool = False,
    points: tuple[str, ...] = (),
) -> Entry:
    """Everything before LLVM."""
    with clock.stage("passes"):
        scheduled = optimised(module, progress)
    with clock.stage("buffers"):
        progress("buffers")
        from distxla.codegen.planner import plan

        planned = plan(scheduled, replicas=replicas, partitions=partitions)
    with clock.stage("import_llvm"):
        from distxla.codegen.entry import emit_entry
        from distxla.collectives.transports.shared_memory import SharedMemory
    with clock.stage("emit"):
        return emit_entry(
            scheduled,
            planned,
            SharedMemory(timed=traced),
            replicas=replicas,
            partitions=partitions,
            progress=progress,
            traced=traced,
            points=points,
            text=module,
        )


@contextmanager
def _explained() -> Iterator[None]:
    """LLVM's complaints about our text as CompileError."""
    try:
        yield
    except DistxlaError:
        raise
    except Exception as error:
        raise CompileError(f"LLVM rejects the generated code: {error}") from error


def _check_counts(module: Module, replicas: int, partitions: int) -> None:
    if replicas < 1 or partitions < 1:
        raise ArgumentError(f"a program needs at least one device, not {replicas} replicas x {partitions} partitions")
