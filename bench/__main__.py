"""Runs both sides in turn and prints tables of whole programs, of collectives inside a loop, and of kernels."""

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
from typing import Any, Protocol

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.collective_programs import DEVICES, Loop, loops
from bench.format import geometric_mean, number, seconds
from bench.kernels import kernel_table, measure_kernels

PROGRAMS = Path(__file__).parent.parent / "tests" / "programs"


class Side(Protocol):
    """distxla or XLA."""

    def compile(self, text: str, arguments: Path) -> float: ...
    def steps(self, count: int) -> list[float]: ...
    def results(self, target: Path) -> None: ...


@dataclass
class Measured:
    """Seconds of one program by side, `distxla` and `xla`. Steps are of all rounds together."""

    name: str
    size: str = ""
    trips: int = 1
    compile_s: dict[str, float] = field(default_factory=dict)
    steps_s: dict[str, list[float]] = field(default_factory=dict)

    def step(self, side: str) -> float | None:
        """Median seconds, of one trip of the loop where there is one."""
        return statistics.median(self.steps_s[side]) / self.trips if side in self.steps_s else None

    def ratio(self) -> float | None:
        ours, xla = self.step("distxla"), self.step("xla")
        return None if ours is None or xla is None else ours / xla

    def compile_ratio(self) -> float | None:
        return self.compile_s["distxla"] / self.compile_s["xla"] if len(self.compile_s) == 2 else None


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Turns of each side.")
@click.option("--round-s", default=0.4, show_default=True, help="About as many seconds a turn.")
@click.option("--only", type=click.Choice(["programs", "collectives", "kernels"]), help="One of the tables.")
@click.option("--match", default="", help="Only rows whose name has this in it.")
@click.option("--xla/--no-xla", default=None, help="Beside XLA CPU; by default where JAX is installed.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write all times to this file, too.")
def main(rounds: int, round_s: float, only: str | None, match: str, xla: bool | None, json_file: str | None) -> None:
    """distxla beside XLA CPU with eight host devices, in turn, on the programs of the repository."""
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
        start_s = None
        if only != "kernels":
            with sides(xla) as (both, start_s):
                console.print(f"8 distxla replicas were up after {start_s:.2f} s; {len(os.sched_getaffinity(0))} cores")
                scratch = Path(folder)
                if only != "collectives":
                    names = [path.parent.name for path in sorted(PROGRAMS.glob("*/meta.json"))]
                    jobs = [
                        lambda name=name: measure_program(both, name, rounds, round_s)
                        for name in names
                        if match in name
                    ]
                    measured["programs"] = measure(jobs, "programs")
                    console.print(program_table(measured["programs"]))
                if only != "programs":
                    wanted = [loop for loop in loops() if match in loop.collective]
                    jobs = [lambda loop=loop: measure_loop(both, loop, rounds, round_s, scratch) for loop in wanted]
                    measured["collectives"] = measure(jobs, "collectives")
                    console.print(collective_table(measured["collectives"]))
        if only in (None, "kernels"):
            measured["kernels"] = list(measure_kernels(match, rounds, round_s, xla))
            console.print(kernel_table(measured["kernels"]))
    if json_file is not None:
        found = {kind: [asdict(m) for m in rows] for kind, rows in measured.items()}
        Path(json_file).write_text(json.dumps(found | {"start_s": start_s}, indent=1))


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
def sides(xla: bool) -> Iterator[tuple[dict[str, Side], float]]:
    """Both sides by name, and the seconds that distxla's replicas took to start."""
    from bench.ours import Ours
    from bench.xla import Xla

    other: AbstractContextManager[Any] = Xla() if xla else nullcontext()
    with Ours() as ours, other as theirs:
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
    return in_turn(both, measured, text, folder / "args.npz", rounds, round_s)


def measure_loop(both: dict[str, Side], loop: Loop, rounds: int, round_s: float, scratch: Path) -> Measured:
    measured = Measured(loop.collective, loop.size, loop.trips)
    arrays: dict[str, Any] = {}
    for d in range(DEVICES):
        arrays[f"arg0@{d}"] = np.zeros(loop.dims, np.float32)  # zeros stay zeros, however often they are added
        arrays[f"arg1@{d}"] = np.array(loop.trips, np.int32)
    np.savez(scratch / "args.npz", **arrays)
    return in_turn(both, measured, loop.text, scratch / "args.npz", rounds, round_s)


def in_turn(
    both: dict[str, Side], measured: Measured, text: str, arguments: Path, rounds: int, round_s: float
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


def collective_table(rows: list[Measured]) -> Table:
    table = Table(title="collectives inside a loop: medians of one trip", title_justify="left")
    table.add_column("collective")
    for header in ("size", "distxla", "XLA", "ratio"):
        table.add_column(header, justify="right")
    name = ""
    for row in rows:
        if name and row.name != name:
            table.add_section()
        name = row.name
        table.add_row(name, row.size, *(seconds(row.step(side)) for side in ("distxla", "xla")), number(row.ratio()))
    return table


if __name__ == "__main__":
    main()
