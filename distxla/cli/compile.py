"""`distxla compile`."""

from __future__ import annotations

import sys
from contextlib import closing, suppress

import click

from distxla.cli.custom_calls import custom_call_option, register_all
from distxla.cli.output_files import written_whole
from distxla.cli.terminal import progress, write, write_bytes
from distxla.cli.time_limits import LimitedCommand, time_limit_option
from distxla.cli.usage import Choice, file_option, files
from distxla.cli.warnings import tell_warnings
from distxla.compiler.stage_names import GPU_ARCHITECTURE, GPU_STAGES, STAGES
from distxla.errors import ArgumentError, CompileError, DeadlockError, UsageError, VerificationError
from distxla.machine.extras import COMPILE, unmet
from distxla.targets.registry import named_backends, target_of_backend
from distxla.time_limit import phase, timed_phases


def list_passes(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print every step of the pipeline once, with its parameters, their defaults and the words that they may be, and
    the standard text."""
    if not wanted or context.resilient_parsing:
        return
    from distxla.compiler.pipeline import Pipeline

    for step in {step.name: step for step in Pipeline().steps}.values():
        given = " ".join(f"{name}={value}" for name, value in step.parameters.items())
        write(f"{step.name}{{{given}}}" if given else step.name)
        write(f"    {step.summary}")
        for name, words in step.words.items():
            write(f"    {name}: {', '.join(words)}.")
    write(f"\nstandard: {Pipeline()}")
    context.exit()


@click.command(
    "compile",
    cls=LimitedCommand,
    short_help="Show a stage of the compiler: HLO, schedule, buffers, LLVM IR, assembly, …",
)
@click.argument("module", metavar="MODULE", shell_complete=files)
@click.option(
    "--list-passes", is_flag=True, is_eager=True, expose_value=False, callback=list_passes, help="List the steps; exit."
)
@click.option("--emit", "stage", type=Choice(STAGES), help="The stage to print; hlo by default.")
@click.option(
    "--backend", type=Choice(named_backends()), default="cpu", show_default=True, help="For which code is made."
)
@click.option(
    "--gpu-arch", metavar="ARCH", help=f"The architecture of kernels for a GPU, {GPU_ARCHITECTURE} by default."
)
@click.option("--print-after", metavar="NAME", help="Print the program after each step NAME instead of a stage.")
@click.option(
    "--passes", metavar="TEXT", help="Run these steps instead of the standard ones: name{parameter=value},name,…"
)
@click.option(
    "--replicas", type=click.IntRange(1), metavar="N", help="Number of replicas, where the header doesn't say it."
)
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions, where the header doesn't say it."
)
@click.option("--timings", is_flag=True, help="Print where the time of a compilation goes instead of a stage.")
@custom_call_option
@time_limit_option
@file_option("--out", "out_file", metavar="FILE", help="Write to this file.")
def command(
    module: str,
    stage: str | None,
    backend: str,
    gpu_arch: str | None,
    print_after: str | None,
    passes: str | None,
    replicas: int | None,
    partitions: int | None,
    timings: bool,
    custom_calls: tuple[str, ...],
    time_limit: float | None,
    out_file: str | None,
) -> None:
    """Compile MODULE and print what one stage makes of it.

    hlo: the module after all passes; schedule: the order of execution, with the memory of each step; buffers: the plan
    of a device's memory, with --backend gpu also the copies to the GPU and back; llvm-unoptimised; llvm; asm; object:
    bytes; ptx: the kernels for a GPU, and which of them compute each instruction; sass-ready: the same, once NVIDIA's
    assembler has taken it, with what each kernel needs; cubin: bytes. Nothing runs. --list-passes names the steps
    before llvm; a step that rewrites the module is verified if --passes is given. --timings prints the milliseconds of
    each phase and, below compiling, of the compiler's stages; starting the compiler's process counts as compiling.
    """
    if stage is not None and print_after is not None:
        raise UsageError("--emit and --print-after exclude each other")
    if timings and (stage, print_after, passes) != (None, None, None):
        raise UsageError("--timings excludes --emit, --print-after and --passes")
    if gpu_arch is not None and stage not in GPU_STAGES:
        raise UsageError(f"--gpu-arch needs --emit {' or '.join(GPU_STAGES)}")

    from distxla.cli.output_files import require_writable
    from distxla.cli.programs import read_world
    from distxla.compiler.server_share import ServerShare
    from distxla.compiler.timings import rows
    from distxla.compiler.verify.verifier import verify_module
    from distxla.ir.op import RuleViolation
    from distxla.program.options import CompileOptions

    if (why := unmet("compiling", COMPILE)) is not None:
        raise CompileError(why)
    if out_file is not None:
        require_writable(out_file)
    register_all(custom_calls)
    with timed_phases() as phases:
        world = read_world([module], replicas, partitions)
        program = world.programs[0]
        with phase("checking"):
            verify_module(program.module)
        with suppress(VerificationError, DeadlockError):  # of several programs the others are not known here
            world = world.settled()
            program = world.programs[0]
        tell_warnings(world)
        options = CompileOptions(target=target_of_backend(backend))
        with phase("compiling"), progress("compiling"), closing(ServerShare()) as share:
            try:
                server = share.server
                found: str | bytes = ""
                stages: dict[str, float] = {}
                if timings:
                    stages = server.compile(program.module, world.counts, options).debug.timings
                elif print_after is not None:
                    found = server.emit_after(program.module, print_after, world.counts, passes=passes)
                else:
                    found = server.emit(
                        program.module,
                        stage or "hlo",
                        world.counts,
                        options,
                        passes=passes,
                        gpu_architecture=gpu_arch,
                    )
            except (RuleViolation, VerificationError) as error:  # groups that do not fit the run break an op's own rule
                world.explain(error)
                raise
    if timings:
        found = "\n".join(f"{name:<34}{1000 * seconds:>10.1f} ms" for name, seconds in rows(phases, stages))
    data = found.encode() if isinstance(found, str) else found
    if out_file is not None:
        with written_whole(out_file) as target:
            target.write(data)
    elif isinstance(found, bytes) and sys.stdout.isatty():
        raise ArgumentError(f"{stage} is binary; name a file with --out, or redirect the output")
    else:
        write_bytes(data if data.endswith(b"\n") or isinstance(found, bytes) else data + b"\n")
