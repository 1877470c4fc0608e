"""`distxla differ`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from distxla.cli import terminal
from distxla.cli.custom_calls import custom_call_option, register_all
from distxla.cli.output_files import require_writable
from distxla.cli.report_page import command_line, write_page
from distxla.cli.time_limits import LimitedCommand, time_limit_option
from distxla.cli.usage import file_option, files
from distxla.errors import ArgumentError
from distxla.time_limit import phase

if TYPE_CHECKING:
    from distxla.cli.array_files import Chosen
    from distxla.differ.comparison import Program
    from distxla.differ.report import Comparison
    from distxla.without_cluster.programs import RunPrograms

DIFFERS = 1
GIBIBYTE = 1 << 30


@click.command(
    "differ", cls=LimitedCommand, short_help="Say where a sharded program's values first leave the unsharded ones."
)
@click.argument("sharded", metavar="SHARDED", shell_complete=files)
@click.argument("unsharded", metavar="[UNSHARDED]", required=False, shell_complete=files)
@file_option(
    "--args",
    "args_file",
    help="Arguments of the unsharded program: keys arg{k}; each device gets its part, or the one of key arg{k}@{d}.",
)
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="Number of replicas, where no header says it.")
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions, where no header says it."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    metavar="X",
    help="Relative to each value's largest element; by default how far rounding moves the value, which is measured.",
)
@click.option("--generate", is_flag=True, help="Make random values, by --seed, for arguments that --args lacks.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="For arguments that are made."
)
@click.option(
    "--memory",
    type=click.FloatRange(0, min_open=True),
    metavar="GIB",
    default=4.0,
    show_default=True,
    help="GiB of values held in memory; the others are in a temporary file.",
)
@click.option(
    "--proof/--no-proof",
    default=True,
    show_default=True,
    help="Run nothing where the results are proved to be equal for all inputs.",
)
@click.option("--relations", is_flag=True, help="Print what each value is to its twin, too.")
@file_option("--report", metavar="FILE.html", help="Write the comparison as a page, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison, or the error, as JSON only.")
@custom_call_option
@time_limit_option
def command(
    sharded: str,
    unsharded: str | None,
    args_file: str | None,
    replicas: int | None,
    partitions: int | None,
    tolerance: float | None,
    generate: bool,
    seed: int,
    memory: float,
    proof: bool,
    relations: bool,
    report: str | None,
    as_json: bool,
    custom_calls: tuple[str, ...],
    time_limit: float | None,
) -> None:
    """Run SHARDED and UNSHARDED on the reference, on the same arguments, and compare each value with its twin: the
    value of UNSHARDED that it is, or is a part of. Where all results are proved to be equal for all inputs, nothing is
    run.

    Without UNSHARDED the twin of a module with automatic shardings is that module itself, unpartitioned. Two modules
    for as many devices are compared device by device. Exit status 0: all results are the same; 1: they differ.
    """
    from distxla.cli.programs import read_world, split_devices
    from distxla.differ.comparison import compare_programs

    if report is not None:
        require_writable(report)
    register_all(custom_calls)
    for name in filter(None, (sharded, unsharded)):
        if split_devices(name)[1] is not None:
            raise ArgumentError(f"{name}: differ compares modules that all devices run, and takes no @DEVICES")
    world = read_world([sharded], replicas, partitions).settled()
    twin = _twin(sharded, unsharded, world, replicas)
    with phase("reading arguments"):
        if world.device_count == twin.device_count:
            rows = sharded_rows = _rows(world, args_file, seed, generate, _all)
        else:
            rows = _rows(twin, args_file, seed, generate, _wholes)
            sharded_rows = _sharded_rows(world, rows, args_file, seed, generate)
    with phase("comparing"):
        found = compare_programs(
            _program(world),
            _program(twin),
            sharded_rows,
            rows,
            tolerance=tolerance,
            memory=int(memory * GIBIBYTE),
            proof=proof,
        )
    _print(found, as_json=as_json, relations=relations)
    if report is not None:
        terminal.write(f"note: {write_page(report, found.page(command_line()))}", err=True)
    if not found.same:
        raise SystemExit(DIFFERS)


def _twin(sharded: str, unsharded: str | None, world: RunPrograms, replicas: int | None) -> RunPrograms:
    """The unsharded program; a global module with automatic shardings as it is, on one device."""
    from distxla.compiler.passes.manual_partitions import has_manual_regions
    from distxla.compiler.passes.partitioning import device_program
    from distxla.errors import UnsupportedOpError
    from distxla.jax.partitioner.loading import load_module
    from distxla.without_cluster.programs import GivenProgram, programs_of_run

    path = unsharded or sharded
    with phase("reading the modules"):
        module = load_module(path)
    try:
        is_global = device_program(module) is not None
    except UnsupportedOpError:
        if has_manual_regions(module):
            raise
        return programs_of_run([GivenProgram(path, module.replace(num_partitions=1))], 1, 1).settled()
    if unsharded is None:
        what = "computes with shards in manual regions" if is_global else "is each device's program already"
        raise ArgumentError(f"{path} {what}: name the unsharded program, too")
    given = None if module.num_partitions is not None else world.counts.partitions if is_global else None
    return programs_of_run([GivenProgram(path, module)], replicas, given).settled()


def _program(world: RunPrograms) -> Program:
    from distxla.differ.comparison import Program

    (program,) = world.programs
    whole = program.whole
    return Program(
        program.module,
        world.counts,
        None if whole is None else whole.parameters,
        None if whole is None else whole.results,
        text="" if whole is None else _mesh_text(program.path),
    )


def _mesh_text(path: str) -> str:
    """Where the mesh has names: in the module as it was given, and no longer in each device's."""
    from distxla.jax.partitioner.loading import load_module

    module = load_module(path)
    return "\n".join([*(value for _, value in module.header), (module.stablehlo or b"").decode(errors="replace")])


def _rows(world: RunPrograms, path: str | None, seed: int, generate: bool, chosen: Chosen) -> list[list[Any]]:
    from distxla.cli.arguments import read_arguments

    found = read_arguments(world, path, seed, generate, chosen).by_device
    return [found[device] for device in range(world.device_count)]


def _all(keys: Sequence[str]) -> Sequence[str]:
    """Of programs for as many devices."""
    return keys


def _wholes(keys: Sequence[str]) -> Sequence[str]:
    """Of a file that also has the parts of devices, those of the unsharded program."""
    return [key for key in keys if "@" not in key]


def _parts(keys: Sequence[str]) -> Sequence[str]:
    """Those of the sharded program: the parts, and wholes that have none."""
    in_parts = {key.partition("@")[0] for key in keys if "@" in key}
    return [key for key in keys if key not in in_parts]


def _sharded_rows(
    world: RunPrograms, rows: list[list[Any]], path: str | None, seed: int, generate: bool
) -> list[list[Any]]:
    """The same arguments as the twin's, in parts."""
    (program,) = world.programs
    if program.whole is not None or path is not None:
        return _rows(world, path, seed, generate, _parts)
    from distxla.cli.arguments import parameter_leaves

    leaves = parameter_leaves(program.module)
    if len(leaves) != len(rows[0]):
        raise ArgumentError(f"{program.path} takes {len(leaves)} arguments, its twin {len(rows[0])}")
    for k, (shape, whole) in enumerate(zip(leaves, rows[0], strict=True)):
        if shape.is_array and not shape.holds(whole.shape):
            raise ArgumentError(
                f"{program.path} does not say how arg{k} is cut, which is {list(whole.shape)} as a whole and "
                f"{list(shape.dims)} on a device: give --args with arg{k} and arg{k}@0, arg{k}@1 …"
            )
    return [rows[0]] * world.device_count


def _print(found: Comparison, *, as_json: bool, relations: bool) -> None:
    if as_json:
        terminal.write_json(found.as_json(), indent=2)
        return
    terminal.write(str(found))
    if relations:
        for one in found.relations:
            line = f" ({one.source})" if one.source else ""
            terminal.write(f"  {one.instruction}{line}: {one.relation}" + (f" [{one.twin}]" if one.twin else ""))
