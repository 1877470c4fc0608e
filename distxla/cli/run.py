"""`distxla run`."""

from __future__ import annotations

import signal
import sys
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from distxla.cli import terminal
from distxla.cli.custom_calls import custom_call_option, register_all
from distxla.cli.nodes import Nodes, nodes_options
from distxla.cli.report_page import ReportingCommand
from distxla.cli.time_limits import time_limit_option
from distxla.cli.usage import Choice, files
from distxla.errors import ArgumentError
from distxla.time_limit import phase

if TYPE_CHECKING:
    from distxla.cli.comparison import Difference
    from distxla.cli.execution import Array, Leaves
    from distxla.cli.feeds import Feeds
    from distxla.ir.element_type import ElementType
    from distxla.ir.shape import Shape


@click.command(
    "run", cls=ReportingCommand, short_help="Run a module on all its devices, or several programs on disjoint devices."
)
@click.argument("modules", nargs=-1, required=True, metavar="MODULE[@DEVICES]...", shell_complete=files)
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="Number of replicas, where no header says it.")
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions, where no header says it."
)
@click.option(
    "--args",
    "args_file",
    metavar="FILE.npz",
    shell_complete=files,
    help="Argument k on device d: key arg{k}@{d}; for all, or of a global module the whole: arg{k}.",
)
@click.option(
    "--out",
    "out_file",
    metavar="FILE.npz",
    shell_complete=files,
    help="Write leaf k of the result on device d as out{k}@{d}; of a global module also the whole, as out{k}.",
)
@click.option(
    "--infeed",
    metavar="FILE.npz",
    shell_complete=files,
    help="Leaf k of the n-th infeed item of device d: key infeed{n}.{k}@{d}; for all devices: infeed{n}.{k}.",
)
@click.option(
    "--outfeed",
    metavar="FILE.npz",
    shell_complete=files,
    help="Write leaf k of the n-th outfeed item as outfeed{n}.{k}@{d}.",
)
@click.option("--backend", type=Choice(["cpu", "gpu", "reference"]), default="cpu", show_default=True)
@click.option("--compare", type=Choice(["reference"]), help="Run this backend too; exit 1 where results differ.")
@click.option(
    "--expected",
    metavar="FILE.npz",
    shell_complete=files,
    help="Compare with these results (keys as --out); exit 1 likewise.",
)
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
    "--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="For generated arguments."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary, also of a failure."
)
@click.option(
    "--report",
    metavar="FILE.html",
    shell_complete=files,
    help="If devices can't go on: a page with their timelines and waits.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="FAULT",
    help="A fault to inject, such as kill:device=3,at=all-reduce.7,round=2; see docs/guide/fault_injection.md.",
)
@click.option(
    "--trace", metavar="FILE.json", shell_complete=files, help="Write a timeline of all devices, which Perfetto opens."
)
@click.pass_context
def command(
    ctx: click.Context,
    modules: tuple[str, ...],
    replicas: int | None,
    partitions: int | None,
    args_file: str | None,
    out_file: str | None,
    infeed: str | None,
    outfeed: str | None,
    backend: str,
    compare: str | None,
    expected: str | None,
    tolerance: float | None,
    custom_calls: tuple[str, ...],
    address: str | None,
    devices_per_host: tuple[int, ...] | None,
    device_memory: int | None,
    reduction_order: str | None,
    repeat: int,
    time_limit: float | None,
    generate: bool,
    seed: int,
    as_json: bool,
    report: str | None,
    inject: tuple[str, ...],
    trace: str | None,
) -> None:
    """Run one SPMD module on all its devices, or several programs on disjoint devices: a.hlo@0-3 b.hlo@4,5.

    Without --args, arguments are generated from --seed; those that its file lacks only with --generate. Every step
    computes on the same arguments. Types that NumPy lacks stand in .npz files as unsigned integers of the same width
    that hold the bits.
    """
    if trace is not None and backend == "reference":
        raise ArgumentError("--trace goes with the cpu backend: the reference runs one device at a time")
    if inject and backend == "reference":
        raise ArgumentError("--inject goes with the cpu backend: the reference has no processes that could fail")
    if backend == "gpu":
        raise ArgumentError("the gpu backend is not available in this version; use --backend cpu")
    if backend == "reference" and address is not None:
        raise ArgumentError("--address goes with the cpu backend: the reference runs in this process")
    if backend == "reference" and devices_per_host is not None:
        raise ArgumentError("--devices-per-host goes with the cpu backend: the reference runs in this process")
    if address is None and devices_per_host is not None and len(devices_per_host) > 1:
        raise ArgumentError("--devices-per-host names several hosts, which takes --address: an embedded Ray has one")
    signal.signal(signal.SIGTERM, _terminate)

    from distxla.cli import comparison, execution, summary
    from distxla.cli.arguments import read_arguments
    from distxla.cli.array_files import read_leaves, write_results
    from distxla.cli.feeds import read_feeds, write_outfeeds
    from distxla.cli.output_files import require_writable
    from distxla.cli.programs import read_world

    terminal.require_stdout()
    for path in (out_file, outfeed, report, trace):
        if path is not None:
            require_writable(path)
    register_all(custom_calls)
    world = read_world(modules, replicas, partitions).in_order(reduction_order).settled()
    injection = None
    if inject:
        from distxla.runtime.injection.injection import Injection

        injection = Injection(inject, world.device_count, "--inject")
    nodes = Nodes(address, devices_per_host, device_memory)
    execution.require_memory(world, nodes, backend)
    with phase("reading arguments"):
        arguments = read_arguments(world, args_file, seed, generate)
        feeds = read_feeds(world, infeed, keeps=outfeed is not None or compare is not None)
    shapes = {device: summary.result_leaves(program) for device, program in world.program_of.items()}
    wanted = read_leaves(expected, "out", shapes, partial(world.shard, "out")) if expected is not None else {}
    if expected is not None and not wanted:
        raise ArgumentError(f"{expected} holds no results")

    try:
        if backend == "reference":
            with terminal.progress("evaluating"):
                done = execution.run_on_reference(world, arguments, repeat, feeds)
        else:
            done = execution.run_on_cluster(world, arguments, repeat, nodes, feeds, trace, injection)
    except BaseException:
        if outfeed is not None and feeds.taken:
            write_outfeeds(outfeed, feeds)  # what was produced before the error
        raise
    if outfeed is not None:
        write_outfeeds(outfeed, feeds)

    if out_file is not None:
        leaves: list[tuple[int, int | None, Array, ElementType]] = [
            (k, device, array, shapes[device][k].dtype)
            for device, row in done.outs.items()
            for k, array in enumerate(row)
            if array is not None
        ]
        for program in world.programs:
            kinds = shapes[program.devices[0]]
            leaves += [(k, None, array, kinds[k].dtype) for k, array in world.joined(program, done.outs)]
        write_results(out_file, leaves)
    comparisons: list[tuple[str, list[Difference]]] = []
    if expected is not None:
        comparisons.append((expected, _differences(done.outs, wanted, shapes, tolerance)))
    if compare is not None:
        with terminal.progress("evaluating the reference"):
            steps = repeat if execution.differs_by_step(world, feeds) else 1
            again = feeds.again()
            other = execution.run_on_reference(world, arguments, steps, again)
        values = {(k, d): a for d, leaves in other.outs.items() for k, a in enumerate(leaves) if a is not None}
        differences = _differences(done.outs, values, shapes, tolerance) + _outfeed_differences(feeds, again, tolerance)
        comparisons.append(("the reference", differences))

    if as_json:
        terminal.write_json(summary.as_json(world, backend, arguments, done, comparisons, feeds))
    else:
        for line in summary.text(world, backend, arguments, done, seed, feeds):
            terminal.write(line, hang=summary.HANG)
        for name, differences in comparisons:
            for number, line in enumerate(comparison.lines(differences, name)):
                terminal.write(f"  {'compared ' if number == 0 else '         '}  {line}", hang=summary.HANG)
    if not all(d.fits for _, differences in comparisons for d in differences):
        ctx.exit(1)


def _differences(
    outs: dict[int, Leaves],
    wanted: dict[tuple[int, int], Array],
    shapes: dict[int, list[Shape]],
    tolerance: float | None,
) -> list[Difference]:
    """Every leaf that the other side has, by leaf and device."""
    from distxla.cli.comparison import compare

    found = []
    for (k, device), value in sorted(wanted.items()):
        got = outs[device][k]
        if got is not None:
            element = shapes[device][k].dtype
            found.append(compare(got, value, element, leaf=k, device=device, tolerance=tolerance))
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


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds like Ctrl-C, so that everything is taken down; further ones do not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
