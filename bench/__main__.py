"""Runs both sides in turn and prints tables of starts, of programs, of collectives and channels inside a loop, of
kernels, of checks, of runs that look for NaN, of reading texts, of calls of JAX functions, of first calls, and of
several JAX processes."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.channels import channel_table, measure_channels
from bench.checked_runs import checked_run_table, measure_checked_runs
from bench.checks import check_table, measure_checks
from bench.collectives import collective_table, measure_collectives, sides_here
from bench.first import first_table, measure_first
from bench.format import geometric_mean, number, seconds
from bench.hosts import host_table, measure_hosts
from bench.jax_calls import jax_call_table, measure_jax_calls
from bench.kernels import kernel_table, measure_kernels
from bench.ours import Ours
from bench.processes import measure_process_calls, measure_process_starts, process_call_table, process_start_table
from bench.side import Arguments, Side, read_arguments
from bench.start import measure_starts, start_table
from bench.streams import measure_streams, stream_table
from bench.texts import measure_texts, text_table
from bench.xla import Xla

DEVICES = 8  # of the programs
PROGRAMS = Path(__file__).parent.parent / "tests" / "programs"


@dataclass
class Measured:
    """Seconds of one program by side, `distxla` and `xla`. Steps are of all rounds together."""

    name: str
    compile_s: dict[str, float] = field(default_factory=dict)
    steps_s: dict[str, list[float]] = field(default_factory=dict)

    def step(self, side: str) -> float | None:
        """Median seconds."""
        return statistics.median(self.steps_s[side]) if side in self.steps_s else None

    def ratio(self) -> float | None:
        ours, xla = self.step("distxla"), self.step("xla")
        return None if ours is None or xla is None else ours / xla

    def compile_ratio(self) -> float | None:
        return self.compile_s["distxla"] / self.compile_s["xla"] if len(self.compile_s) == 2 else None


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Turns of each side.")
@click.option("--round-s", default=0.4, show_default=True, help="About as many seconds a turn.")
@click.option(
    "--only",
    type=click.Choice(
        [
            "start",
            "programs",
            "collectives",
            "channels",
            "streams",
            "hosts",
            "kernels",
            "checks",
            "nan",
            "texts",
            "jax",
            "first",
            "processes",
        ]
    ),
    help="One of the tables.",
)
@click.option("--match", default="", help="Only rows whose name has this in it.")
@click.option("--xla/--no-xla", default=None, help="Beside XLA CPU; by default where JAX is installed.")
@click.option(
    "--members", default="2,8", show_default=True, help="Of the groups of collectives, and devices that channels join."
)
@click.option(
    "--backend",
    default="cpu",
    show_default=True,
    help="distxla's, of programs and collectives: `gpu` for kernels there.",
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write all times to this file, too.")
def main(
    rounds: int,
    round_s: float,
    only: str | None,
    match: str,
    xla: bool | None,
    members: str,
    backend: str,
    json_file: str | None,
) -> None:
    """distxla beside XLA CPU, MPI and gloo, in turn: the programs of the repository, collectives, channels, kernels."""
    if xla is None:
        xla = importlib.util.find_spec("jax") is not None
    console = Console()
    console = Console(width=max(console.width, 130))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DISTXLA_CACHE_DIR"] = os.path.join(
            folder, "cache"
        )  # every program is compiled, none comes from the cache
        if only is None:
            for arguments in (["--help"], ["check", str(PROGRAMS / "dp_mlp" / "partitioned.hlo")]):
                console.print(
                    f"distxla {arguments[0]}: {seconds(command_seconds(arguments))}, median of whole processes"
                )
        measured: dict[str, list[Any]] = {}
        counts = tuple(int(count) for count in members.split(","))
        start_s = None
        if only in (None, "start"):
            measured["start"] = list(measure_starts(match, rounds, xla))
            console.print(start_table(measured["start"]))
        if only in (None, "programs"):
            with sides(xla, backend) as (both, start_s):
                console.print(f"8 distxla replicas were up after {start_s:.2f} s; {len(os.sched_getaffinity(0))} cores")
                names = [path.parent.name for path in sorted(PROGRAMS.glob("*/meta.json"))]
                names = [name for name in names if match in name]
                jobs = [lambda name=name: measure_program(both, name, rounds, round_s) for name in names]
                measured["programs"] = measure(jobs, "programs")
                console.print(program_table(measured["programs"]))
        if only in (None, "collectives"):
            here, notes = sides_here(xla)
            for note in notes:
                console.print(note)
            found = measure_collectives(match, rounds, round_s, here, counts, console.print, backend)
            measured["collectives"] = list(found)
            console.print(collective_table(measured["collectives"], here))
        if only in (None, "channels"):
            measured["channels"] = list(measure_channels(match, rounds, counts))
            console.print(channel_table(measured["channels"]))
        if only in (None, "streams"):
            measured["streams"] = list(measure_streams(match, rounds))
            console.print(stream_table(measured["streams"]))
        if only in (None, "hosts"):
            measured["hosts"] = list(measure_hosts(match, rounds))
            console.print(host_table(measured["hosts"]))
        if only in (None, "kernels"):
            measured["kernels"] = list(measure_kernels(match, rounds, round_s, xla))
            console.print(kernel_table(measured["kernels"]))
        if only in (None, "checks"):
            measured["checks"] = list(measure_checks(match))
            console.print(check_table(measured["checks"]))
        if only in (None, "nan"):
            measured["nan"] = list(measure_checked_runs(match, rounds, round_s))
            console.print(checked_run_table(measured["nan"]))
        if only in (None, "texts"):
            measured["texts"] = list(measure_texts(match, rounds, xla))
            console.print(text_table(measured["texts"]))
        if only in (None, "jax") and xla:
            measured["jax"] = list(measure_jax_calls(match, rounds, round_s))
            console.print(jax_call_table(measured["jax"]))
        if only in (None, "first") and xla:
            measured["first"] = list(measure_first(match, rounds))
            console.print(first_table(measured["first"]))
        if only in (None, "processes") and xla:
            measured["process calls"] = list(measure_process_calls(match, rounds, round_s))
            if measured["process calls"]:
                console.print(process_call_table(measured["process calls"]))
            measured["process starts"] = list(measure_process_starts(match, rounds))
            if measured["process starts"]:
                console.print(process_start_table(measured["process starts"]))
    if json_file is not None:
        tables = {kind: [asdict(m) for m in rows] for kind, rows in measured.items()}
        Path(json_file).write_text(json.dumps(tables | {"start_s": start_s}, indent=1))


def command_seconds(arguments: list[str], runs: int = 7) -> float:
    """Median seconds that the command line takes from start to exit."""
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from distxla.__main__ import main; main()", *arguments],
            capture_output=True,
            check=True,
        )
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


@contextmanager
def sides(xla: bool, backend: str) -> Iterator[tuple[dict[str, Side], float]]:
    """Both sides by name, and the seconds that distxla's replicas took to start."""
    other: AbstractContextManager[Any] = Xla(DEVICES) if xla else nullcontext()
    with Ours(DEVICES, backend) as ours, other as theirs:
        both: dict[str, Side] = {"distxla": ours}
        if theirs is not None:
            both["xla"] = theirs
        yield both, ours.start_s


def measure(jobs: list[Callable[[], Measured]], what: str) -> list[Measured]:
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        return [job() for job in progress.track(jobs, description=what)]


def measure_program(both: dict[str, Side], name: str, rounds: int, round_s: float) -> Measured:
    folder = PROGRAMS / name
    measured = Measured(name)
    text = (folder / "partitioned.hlo").read_text()
    return in_turn(both, measured, text, read_arguments(folder / "args.npz", DEVICES), rounds, round_s)


def in_turn(
    both: dict[str, Side], measured: Measured, text: str, arguments: Arguments, rounds: int, round_s: float
) -> Measured:
    """Compile on both sides, then let them run in turn, so that a busy minute of the machine hits both."""
    counts: dict[str, int] = {}
    for name, side in both.items():
        measured.compile_s[name] = side.compile(text, arguments)
        once = min(side.steps(3))
        counts[name] = max(1, min(500, int(round_s / max(once, 1e-6))))
        measured.steps_s[name] = []
    for _ in range(rounds):
        for name, side in both.items():
            measured.steps_s[name] += side.steps(counts[name])
    return measured


def program_table(rows: list[Measured]) -> Table:
    table = Table(title=f"programs, {DEVICES} devices: medians", title_justify="left")
    table.add_column("program")
    for header in ("compile", "XLA", "ratio", "step", "XLA", "ratio"):
        table.add_column(header, justify="right")
    for row in rows:
        compiling = [seconds(row.compile_s.get(side)) for side in ("distxla", "xla")]
        stepping = [seconds(row.step(side)) for side in ("distxla", "xla")]
        table.add_row(row.name, *compiling, number(row.compile_ratio()), *stepping, number(row.ratio()))
    means = geometric_mean([r.compile_ratio() for r in rows]), geometric_mean([r.ratio() for r in rows])
    table.add_section()
    table.add_row("geometric mean", "", "", number(means[0]), "", "", number(means[1]))
    return table


if __name__ == "__main__":
    main()
