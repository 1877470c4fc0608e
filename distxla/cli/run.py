"""`distxla run`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distxla.cli import terminal
from distxla.cli.custom_calls import custom_call_option, register_all
from distxla.cli.nodes import Nodes, device_assignment_option, nodes_options
from distxla.cli.report_page import ReportingCommand
from distxla.cli.time_limits import time_limit_option
from distxla.cli.usage import Choice, file_option, files
from distxla.cli.warnings import tell_warnings
from distxla.errors import ArgumentError, ClusterError, UsageError
from distxla.lazy_dataclass import dataclass
from distxla.runtime.ray.versions import require_run
from distxla.targets.registry import backends, named_backends, target_of_backend
from distxla.time_limit import phase

if TYPE_CHECKING:
    from distxla.cli.arguments import Arguments
    from distxla.cli.comparison import Difference
    from distxla.cli.execution import Array, Execution, Leaves
    from distxla.cli.feeds import Feeds
    from distxla.cli.programs import RunPrograms
    from distxla.ir.element_type import ElementType
    from distxla.ir.shape import Shape
    from distxla.runtime.calls.fault_injection import Injection

Group = TypeVar("Group")


@dataclass(frozen=True)
class ProgramOptions:
    """Which programs run, and on which devices."""

    modules: tuple[str, ...]
    replicas: int | None
    partitions: int | None
    device_assignment: tuple[int, ...] | None
    reduction_order: str | None
    custom_calls: tuple[str, ...]


@dataclass(frozen=True)
class InputOptions:
    """What the programs compute on."""

    args_file: str | None
    infeed: str | None
    generate: bool
    generate_constants: bool
    seed: int


@dataclass(frozen=True)
class ExecutionOptions:
    """How the steps run."""

    backend: str
    repeat: int
    inject: tuple[str, ...]
    check: tuple[str, ...]


@dataclass(frozen=True)
class OutputOptions:
    """What is written, and where."""

    out_file: str | None
    outfeed: str | None
    report: str | None
    trace: str | None
    timeline: str | None
    as_json: bool
    values: bool

    @property
    def paths(self) -> dict[str, str | None]:
        """The file of each option."""
        return {
            "--out": self.out_file,
            "--outfeed": self.outfeed,
            "--report": self.report,
            "--trace": self.trace,
            "--timeline": self.timeline,
        }


@dataclass(frozen=True)
class ComparisonOptions:
    """What the results are compared with."""

    compare: str | None
    expected: str | None
    tolerance: float | None


@dataclass(frozen=True)
class RunOptions:
    """The command line, in the words of its options, by what asks for them."""

    programs: ProgramOptions
    inputs: InputOptions
    nodes: Nodes
    execution: ExecutionOptions
    outputs: OutputOptions
    comparison: ComparisonOptions

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunOptions:
        """values: of all options, by name."""

        def group(kind: type[Group]) -> Group:
            return kind(**{name: values[name] for name in kind.__annotations__})

        return cls(
            group(ProgramOptions),
            group(InputOptions),
            group(Nodes),
            group(ExecutionOptions),
            group(OutputOptions),
            group(ComparisonOptions),
        )


SECTIONS = {
    "Programs": ProgramOptions,
    "Arguments": InputOptions,
    "Execution": ExecutionOptions,
    "Hosts": Nodes,
    "Results": OutputOptions,
    "Comparison": ComparisonOptions,
}
_ALONE = {"stub_custom_call": "Programs", "time_limit": "Execution"}  # options of several commands


class _Command(ReportingCommand):
    """Its help has the options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        section_of = _ALONE | {name: title for title, group in SECTIONS.items() for name in group.__annotations__}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                rows.setdefault(section_of.get(parameter.name or "", "Other"), []).append(row)
        for title, options in rows.items():
            with formatter.section(title):
                formatter.write_dl(options)


@click.command(
    "run", cls=_Command, short_help="Run a module on all its devices, or several programs on disjoint devices."
)
@click.argument("modules", nargs=-1, required=True, metavar="MODULE[@DEVICES]...", shell_complete=files)
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="Number of replicas, where no header says it.")
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions, where no header says it."
)
@device_assignment_option
@file_option(
    "--args",
    "args_file",
    help="Argument k on device d: key arg{k}@{d}; for all, or of a global module the whole: arg{k}.",
)
@file_option(
    "--out",
    "out_file",
    help="Write leaf k of the result on device d as out{k}@{d}; of a global module also the whole, as out{k}.",
)
@file_option(
    "--infeed",
    help="Leaf k of the n-th infeed item of device d: key infeed{n}.{k}@{d}; for all devices: infeed{n}.{k}.",
)
@file_option("--outfeed", help="Write leaf k of the n-th outfeed item as outfeed{n}.{k}@{d}.")
@click.option(
    "--backend",
    type=Choice(sorted({*named_backends(), "reference"})),
    default="cpu",
    show_default=True,
)
@click.option("--compare", type=Choice(["reference"]), help="Run this backend too; exit 1 where results differ.")
@file_option("--expected", help="Compare with these results (keys as --out); exit 1 likewise.")
@click.option(
    "--tolerance", type=click.FloatRange(0), metavar="X", help="For comparisons: relative to the magnitudes in a leaf."
)
@custom_call_option
@nodes_options
@click.option(
    "--reduction-order",
    type=Choice(["rank", "tree", "ring"]),
    help="In which order members' values are combined; by default in group order, which is rank.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Steps, each on the same arguments.",
)
@time_limit_option
@click.option("--generate", is_flag=True, help="Make random values, by --seed, for arguments that --args lacks.")
@click.option(
    "--generate-constants", is_flag=True, help="Make random values, by --seed, for constants that a text has as {...}."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="For generated arguments and constants.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary, also of a failure."
)
@click.option("--values", is_flag=True, help="With --json: the values of all results, too.")
@file_option("--report", metavar="FILE.html", help="If devices can't go on: a page with their timelines and waits.")
@click.option(
    "--inject",
    multiple=True,
    metavar="FAULT",
    help="A fault to inject, such as kill:device=3,at=all-reduce.7,round=2; see docs/guide/fault_injection.md.",
)
@file_option("--trace", metavar="FILE.json", help="Write a timeline of all devices, which ui.perfetto.dev opens.")
@file_option("--timeline", metavar="FILE.html", help="Write a page with a timeline of all devices, for a browser.")
@click.option(
    "--check",
    multiple=True,
    type=Choice(["nan", "replication"]),
    help="nan: where results' NaN and Inf come from. replication: what is declared the same on devices must be.",
)
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Run one SPMD module on all its devices, or several programs on disjoint devices: a.hlo@0-3 b.hlo@4,5.

    Without --args, arguments are generated from --seed; those that its file lacks only with --generate. Every step
    computes on the same arguments. Types that NumPy lacks stand in .npz files as unsigned integers of the same width
    that hold the bits.
    """
    options = RunOptions.of(values)
    _require_possible(options)
    if not _run(options):
        ctx.exit(1)


def _require_possible(options: RunOptions) -> None:
    """ArgumentError for options that don't go together."""
    from distxla.cli.programs import split_devices

    if options.outputs.values and not options.outputs.as_json:
        raise UsageError("--values needs --json")
    if options.comparison.tolerance is not None and math.isnan(options.comparison.tolerance):
        raise ArgumentError("--tolerance: expected a number, found nan")
    if options.execution.backend == "reference":
        _require_none_of_a_cluster(options)
    else:
        _require_installed()
        target_of_backend(options.execution.backend)
    programs, nodes = options.programs, options.nodes
    if programs.device_assignment is not None and any(split_devices(name)[1] is not None for name in programs.modules):
        raise ArgumentError("--device-assignment and devices behind @ both say where a program runs: give one of them")
    if nodes.address is None and nodes.devices_per_host is not None and len(nodes.devices_per_host) > 1:
        raise ArgumentError("--devices-per-host names several hosts, which takes --address: an embedded Ray has one")


def _require_installed() -> None:
    """ClusterError where what runs devices is not there."""
    try:
        require_run("running on a cluster")
    except ClusterError as error:
        error.add_note("hint: `check`, `differ` and `run --backend reference` do without")
        raise


def _require_none_of_a_cluster(options: RunOptions) -> None:
    """ArgumentError for options that the reference does not have."""
    nodes = options.nodes
    given = {
        "--trace": (options.outputs.trace is not None, "runs one device at a time"),
        "--timeline": (options.outputs.timeline is not None, "runs one device at a time"),
        "--inject": (bool(options.execution.inject), "has no processes that could fail"),
        "--address": (nodes.address is not None, "runs in this process"),
        "--devices-per-host": (nodes.devices_per_host is not None, "runs in this process"),
        "--devices-per-gpu": (nodes.devices_per_gpu is not None, "uses none"),
        "--device-assignment": (
            options.programs.device_assignment is not None,
            "has no other devices than the program's",
        ),
    }
    for option, (is_given, reason) in given.items():
        if is_given:
            raise ArgumentError(
                f"{option} needs the backend of a cluster ({', '.join(backends())}): the reference {reason}"
            )


def _run(options: RunOptions) -> bool:
    """Run, compare, and tell. False where results differ from those that they are compared with."""
    from distxla.cli import execution, summary
    from distxla.cli.arguments import read_arguments
    from distxla.cli.array_files import read_leaves
    from distxla.cli.feeds import read_feeds
    from distxla.cli.output_files import require_distinct, require_writable
    from distxla.cli.programs import read_world

    terminal.require_stdout()
    for path in filter(None, options.outputs.paths.values()):
        require_writable(path)
    require_distinct(options.outputs.paths)
    programs, inputs = options.programs, options.inputs
    register_all(programs.custom_calls)
    constants_seed = inputs.seed if inputs.generate_constants else None
    world = read_world(programs.modules, programs.replicas, programs.partitions, constants_seed)
    world = world.assigned(programs.device_assignment, options.nodes.devices_per_host)
    world = world.in_order(programs.reduction_order).settled()
    tell_warnings(world)
    injection = _injection(options.execution.inject, world)
    execution.require_memory(world, options.nodes, options.execution.backend)
    with phase("reading arguments"):
        arguments = read_arguments(world, inputs.args_file, inputs.seed, inputs.generate)
        keeps = options.outputs.outfeed is not None or options.comparison.compare is not None
        feeds = read_feeds(world, inputs.infeed, keeps=keeps)
    shapes = {device: summary.result_leaves(program) for device, program in world.program_of.items()}
    expected = options.comparison.expected
    wanted = read_leaves(expected, "out", shapes, partial(world.shard, "out")) if expected is not None else {}
    if expected is not None and not wanted:
        raise ArgumentError(f"{expected} holds no results")

    done = _executed(options, world, arguments, feeds, injection)
    if options.outputs.out_file is not None:
        _write_results(options.outputs.out_file, world, done, shapes)
    comparisons: list[tuple[str, list[Difference]]] = []
    if expected is not None:
        comparisons.append((expected, _differences(world, done.outs, wanted, shapes, options.comparison.tolerance)))
    if options.comparison.compare is not None:
        found = _compared_with_reference(options, world, arguments, feeds, done, shapes)
        comparisons.append(("the reference", found))
    _tell(options, world, arguments, feeds, done, comparisons)
    return all(d.fits for _, differences in comparisons for d in differences)


def _injection(faults: tuple[str, ...], world: RunPrograms) -> Injection | None:
    """The faults to inject."""
    if not faults:
        return None
    from distxla.runtime.calls.fault_injection import Injection

    return Injection(faults, world.device_count, "--inject")


def _executed(
    options: RunOptions,
    world: RunPrograms,
    arguments: Arguments,
    feeds: Feeds,
    injection: Injection | None,
) -> Execution:
    """All steps on the backend. Items taken from outfeeds are written, also before an error."""
    from distxla.cli import execution
    from distxla.cli.feeds import write_outfeeds

    how, files, outfeed = options.execution, options.outputs, options.outputs.outfeed
    try:
        if how.backend == "reference":
            with terminal.progress("evaluating"):
                done = execution.run_on_reference(world, arguments, how.repeat, feeds, how.check)
        else:
            done = execution.run_on_cluster(
                world,
                arguments,
                how.repeat,
                options.nodes,
                feeds,
                files.trace,
                files.timeline,
                injection,
                how.backend,
                how.check,
            )
    except BaseException:
        if outfeed is not None and feeds.taken:
            write_outfeeds(outfeed, feeds)
        raise
    if outfeed is not None:
        write_outfeeds(outfeed, feeds)
    return done


def _write_results(path: str, world: RunPrograms, done: Execution, shapes: dict[int, list[Shape]]) -> None:
    """Every device's leaves, and those of global modules as a whole."""
    from distxla.cli.array_files import write_results

    leaves: list[tuple[int, int | None, Array, ElementType]] = [
        (k, device, array, shapes[device][k].dtype)
        for device, row in done.outs.items()
        for k, array in enumerate(row)
        if array is not None
    ]
    for program in world.programs:
        kinds = shapes[program.devices[0]]
        leaves += [(k, None, array, kinds[k].dtype) for k, array in world.joined(program, done.outs)]
    write_results(path, leaves)


def _compared_with_reference(
    options: RunOptions,
    world: RunPrograms,
    arguments: Arguments,
    feeds: Feeds,
    done: Execution,
    shapes: dict[int, list[Shape]],
) -> list[Difference]:
    from distxla.cli import execution

    with terminal.progress("evaluating the reference"):
        steps = options.execution.repeat if execution.differs_by_step(world, feeds) else 1
        again = feeds.again()
        other = execution.run_on_reference(world, arguments, steps, again)
    values = {(k, d): a for d, leaves in other.outs.items() for k, a in enumerate(leaves) if a is not None}
    differences = _differences(world, done.outs, values, shapes, options.comparison.tolerance)
    return differences + _outfeed_differences(feeds, again, options.comparison.tolerance)


def _tell(
    options: RunOptions,
    world: RunPrograms,
    arguments: Arguments,
    feeds: Feeds,
    done: Execution,
    comparisons: list[tuple[str, list[Difference]]],
) -> None:
    """The summary and the comparisons, as lines or as JSON."""
    from distxla.cli import comparison, summary

    outputs = options.outputs
    if outputs.as_json:
        terminal.write_json(
            summary.as_json(
                world, options.execution.backend, arguments, done, comparisons, feeds, values=outputs.values
            )
        )
        return
    for line in summary.text(world, options.execution.backend, arguments, done, options.inputs.seed, feeds):
        terminal.write(line, hang=summary.HANG)
    for name, differences in comparisons:
        for number, line in enumerate(comparison.lines(differences, name)):
            terminal.write(f"  {'compared ' if number == 0 else '         '}  {line}", hang=summary.HANG)


def _differences(
    world: RunPrograms,
    outs: dict[int, Leaves],
    wanted: dict[tuple[int, int], Array],
    shapes: dict[int, list[Shape]],
    tolerance: float | None,
) -> list[Difference]:
    """Every leaf that the other side has, by leaf and device."""
    from distxla.cli.comparison import compare
    from distxla.compiler.verify.aliases import names_of_results

    names = {device: names_of_results(program.module) for device, program in world.program_of.items()}
    found = []
    for (k, device), value in sorted(wanted.items()):
        got = outs[device][k]
        if got is not None:
            element = shapes[device][k].dtype
            label = f"out{k} {names[device][k]}" if k in names[device] else None
            found.append(compare(got, value, element, leaf=k, device=device, tolerance=tolerance, label=label))
    return found


def _outfeed_differences(feeds: Feeds, other: Feeds, tolerance: float | None) -> list[Difference]:
    """Every leaf of every outfeed item, by device and item."""
    from distxla.cli.comparison import compare, missing
    from distxla.ir.element_type import element_type_of

    found = []
    for device in sorted({*feeds.taken, *other.taken}):
        ours, theirs = feeds.taken.get(device, []), other.taken.get(device, [])
        for n, (got, wanted) in enumerate(zip(ours, theirs)):
            for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
                element = element_type_of(b.dtype)
                found.append(compare(a, b, element, leaf=k, device=device, tolerance=tolerance, item=n))
        longer = max(ours, theirs, key=len)
        for n in range(min(len(ours), len(theirs)), len(longer)):
            for k, array in enumerate(longer[n]):
                element = element_type_of(array.dtype)
                found.append(missing(array, element, leaf=k, device=device, item=n, got=longer is ours))
    return found
