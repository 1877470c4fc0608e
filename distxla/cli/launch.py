"""`distxla launch`."""

from __future__ import annotations

import os
import signal

import click

from distxla.cli import terminal
from distxla.cli.output_files import require_writable
from distxla.cli.report_page import command_line, write_page
from distxla.cli.stop_requests import TERMINATED, stops
from distxla.errors import ArgumentError, UsageError
from distxla.runtime.ray.versions import require_run

DEVICES = 8  # in all, where nothing says how many each process has


class _Command(click.Command):
    """Its own options end where the command of the processes begins."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.allow_interspersed_args = False


@click.command("launch", cls=_Command, short_help="Start several JAX processes that share distxla's devices.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@click.option("-n", "--processes", type=click.IntRange(1, 1024), required=True, metavar="N", help="How many.")
@click.option(
    "--devices-per-process",
    "--devices",
    "devices",
    type=click.IntRange(1),
    metavar="K",
    help="Devices of each; by default DISTXLA_DEVICES, else JAX_NUM_CPU_DEVICES, else 8 // N, at least 1.",
)
@click.option(
    "--address",
    metavar="RAY",
    envvar="DISTXLA_ADDRESS",
    help="HOST:PORT of a Ray on whose nodes they run, equally many on each that has CPUs; `auto` in a job of Ray's.",
)
@click.option(
    "--processes-per-host",
    metavar="N,N,...",
    help="With --address: how many processes each node has, this host first.",
)
@click.option(
    "--stall-limit",
    type=click.FloatRange(0, min_open=True),
    envvar="DISTXLA_STALL_LIMIT",
    metavar="S",
    help="Exit 5 where a process keeps others waiting for so many seconds; by default that is only told.",
)
@click.option(
    "--stdin",
    type=str,
    metavar="P",
    help="The process that reads stdin, as for a debugger; `none` for none. By default 0, if it is on this host.",
)
@click.option("--check", multiple=True, metavar="NAME", help="Check all programs: nan, replication.")
@click.option("--report", metavar="FILE.html", help="If processes can't go on: write a page that says why.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the processes' output goes to stderr.")
def command(
    command: tuple[str, ...],
    processes: int,
    devices: int | None,
    address: str | None,
    processes_per_host: str | None,
    stall_limit: float | None,
    stdin: str | None,
    check: tuple[str, ...],
    report: str | None,
    as_json: bool,
) -> int:
    """Start N processes of a JAX program, on this machine or the nodes of a Ray cluster, and the owner of their
    devices. In each of them `jax.distributed.initialize()` needs no arguments.

    Lines of their output begin with the process: `[0] loss 1.25`. Once one has failed the others are ended after 5
    seconds. The exit status is 3 where the processes disagree on what to call, or on values that --check replication
    compares, 5 where one kept the others waiting for too long, 4 where a device or the owner was lost, else that of
    the process that failed first, 128 + N where signal N ended it.
    """
    from distxla.cli.launch_environment import LaunchOptions
    from distxla.cli.launched import Launched
    from distxla.jax.processes.owner_settings import OwnerSettings
    from distxla.machine.processes import adopt_orphans
    from distxla.runtime.checks.checks import checks_of

    counts = _counts(processes_per_host, processes)
    if counts is not None and not address:
        raise ArgumentError("--processes-per-host: there is one host without --address")
    require_run("a cluster")
    if report is not None:
        require_writable(report)
    checks = (
        checks_of(check, "--check") if check else checks_of(os.environ.get("DISTXLA_CHECK") or None, "DISTXLA_CHECK")
    )
    settings = OwnerSettings(
        devices or _devices(processes),
        address or None,
        os.environ.get("DISTXLA_DEVICE_MEMORY") or None,
        os.environ.get("DISTXLA_BACKEND") or "cpu",
        tuple(sorted(checks)),
        stall_limit,
        processes_per_host=counts,
    )
    environment = {"DISTXLA_CHECK": ",".join(sorted(checks))} if checks else {}
    reads = _stdin_of("0" if stdin is None else stdin, processes)
    options = LaunchOptions(command, processes, settings, environment, reads, is_stdin_wanted=stdin is not None)

    def write(data: bytes, err: bool) -> None:
        terminal.write_bytes(data, err=err or as_json)

    adopt_orphans()
    launched = Launched(options, write)
    try:
        try:
            launched.start()
            launched.run()
        except (KeyboardInterrupt, SystemExit):
            launched.stop(signal.SIGTERM if stops.first == TERMINATED else signal.SIGINT)
            raise
    finally:
        launched.close()
    outcome = launched.outcome
    status = outcome.status()
    for line in outcome.lines(launched.said):
        terminal.write(line, err=True)
    if report is not None and status:
        verdict = outcome.verdict()
        found = None if verdict is None or verdict.diagnosis is None else verdict.diagnosis
        told = f"there is no report for {report}" if found is None else write_page(report, found.page(command_line()))
        terminal.write(f"note: {told}", err=True)
    if as_json:
        terminal.write_json(outcome.as_json(status))
    return status


def _devices(processes: int) -> int:
    """Of each process. UsageError for a count in the environment that is none."""
    for name in ("DISTXLA_DEVICES", "JAX_NUM_CPU_DEVICES"):
        told = os.environ.get(name)
        if told and told != "-1":
            if not told.isdecimal() or not int(told):
                raise UsageError(f"{name}: expected a number of devices, found {told!r}")
            return int(told)
    return max(1, DEVICES // processes)


def _counts(told: str | None, processes: int) -> tuple[int, ...] | None:
    """Of processes of each host. UsageError where they are none."""
    if told is None:
        return None
    words = told.split(",")
    if not all(word.isdecimal() for word in words) or sum(map(int, words)) != processes:
        raise UsageError(f"--processes-per-host: expected counts of {processes} processes, as 2,2, found {told!r}")
    return tuple(map(int, words))


def _stdin_of(told: str, processes: int) -> int | None:
    """The process that reads stdin. UsageError where there is no such process."""
    if told == "none":
        return None
    if not told.isdecimal() or int(told) >= processes:
        raise UsageError(f"--stdin: expected a process, 0 to {processes - 1}, or none, found {told!r}")
    return int(told)
