"""The compiler's output after a stage, or after a step of the pipeline, to be read by people and other tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial

from distxla.compiler.compile import (
    Progress,
    code_target,
    grid_program,
    grid_rounds,
    lower,
    parse_llvm,
    planned,
    require_counts,
    silent,
    with_transfers,
)
from distxla.compiler.entry.entry import Entry
from distxla.compiler.lower.grid.program import emit_grid_program
from distxla.compiler.passes.schedule import Schedule
from distxla.compiler.passes.start_done_as_written import as_written
from distxla.compiler.pipeline import Pipeline, parse_pipeline
from distxla.compiler.plan.plan_program import PlanMemory, Planned
from distxla.compiler.stage_names import GPU_ARCHITECTURE, GPU_STAGES, STAGES
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.program.options import CompileOptions
from distxla.rewrites.step import Compilation, Step
from distxla.scheduler.program_order.listing import print_schedule
from distxla.targets.code import CodeTarget
from distxla.targets.nvptx.assembler import assemble
from distxla.targets.nvptx.code import code_for
from distxla.text.printer import print_module


def emit(
    module: Module,
    stage: str,
    counts: Counts,
    options: CompileOptions | None = None,
    *,
    progress: Progress = silent,
    passes: str | None = None,
    gpu_architecture: str | None = None,
) -> str | bytes:
    """The compiler's output after a stage: one of STAGES, as text (object, cubin: bytes).

    hlo: after the passes; schedule: in execution order, with the memory of each step; buffers: of a target whose
    kernels have a memory of their own also the copies to it and back, and where instructions are computed; llvm:
    optimised.
    passes: the text of a pipeline instead of the standard one.  gpu_architecture: of the kernels of GPU_STAGES, such as
    `sm_80`; sass-ready and cubin need NVIDIA's assembler.  Raises the errors of
    compile_module, ArgumentError for an unknown stage or architecture, without an assembler, or for a stage that the
    pipeline doesn't reach.
    """
    if stage not in STAGES:
        raise ArgumentError(f"no stage {stage!r}; the stages are {', '.join(STAGES)}")
    require_counts(counts)
    options = options or CompileOptions()
    pipeline = _pipeline(passes, options, progress)
    if stage == "hlo":
        compilation = pipeline.before(Schedule.name).run(module, counts)
        return print_module(as_written(compilation.module))
    if stage == "schedule":
        compilation = pipeline.through(Schedule.name).run(module, counts)
        return print_schedule(compilation.module, as_written(compilation.module))
    compilation = planned(pipeline, module, counts)
    if stage in GPU_STAGES:
        return _gpu_code(compilation, stage, gpu_architecture or GPU_ARCHITECTURE, progress)
    code = code_target(options.target)
    grid = grid_program(compilation, code, progress)
    if stage == "buffers":
        plan = compilation.plan if grid is None else with_transfers(compilation, grid)
        return ("" if grid is None else _listed(grid.steps)) + plan.dump()
    entry = lower(module, compilation, code, options, progress, grid=grid)
    return _code(entry, stage, code, progress)


def emit_after(
    module: Module,
    name: str,
    counts: Counts,
    options: CompileOptions | None = None,
    *,
    progress: Progress = silent,
    passes: str | None = None,
) -> str:
    """The compiler's output after each step of that name, headed by a comment with the step and its number.

    The steps behind the last one don't run. Otherwise as `emit`.
    """
    require_counts(counts)
    pipeline = _pipeline(passes, options or CompileOptions(), progress)
    found: list[str] = []
    number = 0

    def after(step: Step, compilation: Compilation) -> None:
        nonlocal number
        number += 1
        if step.name == name:
            text = _shown(step, compilation).rstrip("\n")
            found.append(f"// after {step}, step {number} of {len(pipeline.steps)}\n{text}\n")

    pipeline.through(name).run(module, counts, after)
    return "\n".join(found)


def _pipeline(passes: str | None, options: CompileOptions, progress: Progress) -> Pipeline:
    if passes is None:
        return Pipeline.of(options, progress)
    return dataclasses.replace(parse_pipeline(passes, "--passes"), progress=progress)


def _shown(step: Step, compilation: Compilation) -> str:
    if isinstance(step, PlanMemory) and isinstance(compilation, Planned):
        return compilation.plan.dump()
    written = as_written(compilation.module)
    return print_schedule(compilation.module, written) if isinstance(step, Schedule) else print_module(written)


def _code(entry: Entry, stage: str, code: CodeTarget, progress: Progress) -> str | bytes:
    if stage == "llvm-unoptimised":
        return str(entry.llvm_module)
    parsed = parse_llvm(entry.llvm_module, code, progress)
    progress("optimising LLVM IR")
    code.optimise(parsed)
    if stage == "llvm":
        return str(parsed)
    progress("emitting object code")
    return code.emit_assembly(parsed) if stage == "asm" else code.emit_object(parsed)


def _gpu_code(compilation: Planned, stage: str, architecture: str, progress: Progress) -> str | bytes:
    """The kernels of a program; their text is headed by comments that say how each instruction is computed."""
    code = code_for(architecture)
    rounds = partial(grid_rounds, compilation)
    program = emit_grid_program(compilation.module, compilation.plan, code, progress, rounds)
    progress("optimising LLVM IR")
    parsed = code.parse(program.llvm_module)
    code.optimise(parsed)
    progress("emitting PTX")
    ptx, steps = code.emit_assembly(parsed), _listed(program.steps)
    if stage == "ptx":
        return steps + ptx
    progress("assembling PTX")
    cubin, kernels = assemble(ptx, architecture)
    return cubin if stage == "cubin" else steps + "".join(f"// {kernel}\n" for kernel in kernels) + ptx


def _listed(steps: Iterable[object]) -> str:
    return "".join(f"// {step}\n" for step in steps)


__all__ = ["STAGES", "emit", "emit_after"]
