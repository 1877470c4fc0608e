"""The table of `--check nan`: the same programs with and without, in turn, by processor time of their devices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import distxla as dx
from bench.format import geometric_mean, number, seconds
from bench.kernel_programs import kernel_programs
from bench.side import read_arguments

PROGRAMS = Path(__file__).parent.parent / "tests" / "programs"


@dataclass
class MeasuredCheckedRun:
    """Seconds of one run of a program on all its devices, by whether it is checked: processor time and wall time."""

    name: str
    processor_s: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    wall_s: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    compile_s: dict[bool, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Of the least processor times: others' work on the machine only ever adds to them."""
        return min(self.processor_s[True]) / min(self.processor_s[False])

    @property
    def wall_ratio(self) -> float:
        return min(self.wall_s[True]) / min(self.wall_s[False])


def measure_checked_runs(match: str, rounds: int, round_s: float) -> Iterator[MeasuredCheckedRun]:
    """Those whose name has `match` in it: the programs on eight devices, kernels on one."""
    folders = [path.parent for path in sorted(PROGRAMS.glob("*/meta.json")) if match in path.parent.name]
    if folders:
        with dx.Cluster(partitions=8) as cluster:
            for folder in folders:
                text = (folder / "partitioned.hlo").read_text()
                yield _measure(cluster, folder.name, text, read_arguments(folder / "args.npz", 8), rounds, round_s)
    kernels = [k for k in kernel_programs() if match in f"{k.group} {k.name}" and "f32" in k.name + k.text]
    if kernels:
        with dx.Cluster() as cluster:
            for kernel in kernels:
                random = np.random.default_rng(0)
                module = dx.parse(kernel.text)
                leaves = [leaf for p in module.entry_computation.parameters for leaf in p.shape.leaves()]
                row = [_values(random, leaf, kernel.integers, kernel.floats) for leaf in leaves]
                yield _measure(cluster, f"{kernel.group}: {kernel.name}", kernel.text, [row], rounds, round_s)


def _values(random: np.random.Generator, leaf: Any, integers: int, floats: tuple[float, float]) -> Any:
    if leaf.dtype.is_integer:
        return random.integers(0, min(integers, 100), leaf.dims).astype(leaf.dtype.dtype)
    return random.uniform(*floats, leaf.dims).astype(leaf.dtype.dtype)


def _measure(
    cluster: dx.Cluster, name: str, text: str, arguments: Any, rounds: int, round_s: float
) -> MeasuredCheckedRun:
    measured = MeasuredCheckedRun(name)
    placed = [[cluster.put(array, d) for array in row] for d, row in enumerate(arguments)]
    steps = {}
    for check in (False, True):
        begin = time.perf_counter()
        steps[check] = cluster.compile(dx.parse(text), check="nan" if check else ())
        measured.compile_s[check] = time.perf_counter() - begin
        steps[check](placed)
    begin = time.perf_counter()
    steps[False](placed, repeat=3)
    count = max(1, int(round_s / max((time.perf_counter() - begin) / 3, 1e-6)))
    pids = [pid for _, _, pid in cluster.replicas_info]
    for _ in range(rounds):
        for check, step in steps.items():
            before, begin = _processor_s(pids), time.perf_counter()
            step(placed, repeat=count)
            measured.wall_s[check].append((time.perf_counter() - begin) / count)
            measured.processor_s[check].append((_processor_s(pids) - before) / count)
    return measured


def _processor_s(pids: list[int]) -> float:
    """Processor time of these processes' threads so far, by the scheduler's clock."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def checked_run_table(rows: list[MeasuredCheckedRun]) -> Table:
    table = Table(title="runs with --check nan beside runs without: least processor time", title_justify="left")
    table.add_column("program")
    for header in ("compile", "checked", "run", "checked", "ratio", "wall ratio"):
        table.add_column(header, justify="right")
    for row in rows:
        compiling = [seconds(row.compile_s[check]) for check in (False, True)]
        running = [seconds(min(row.processor_s[check])) for check in (False, True)]
        table.add_row(row.name, *compiling, *running, number(row.ratio), number(row.wall_ratio))
    table.add_section()
    means = geometric_mean([r.ratio for r in rows]), geometric_mean([r.wall_ratio for r in rows])
    table.add_row("geometric mean", "", "", "", "", number(means[0]), number(means[1]))
    return table
