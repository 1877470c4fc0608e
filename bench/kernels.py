"""The table of kernels: each compiled by distxla and by XLA CPU, on one processor, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from bench.format import geometric_mean, number, seconds
from bench.kernel_programs import KernelProgram, kernel_programs
from bench.one_device import OneDevice


@dataclass
class MeasuredKernel:
    """Seconds of one kernel by side: to compile, and of its runs. differs: the largest difference of the results,
    relative to the largest result; NaN where one side has none. errors: by side, where it could not run."""

    group: str
    name: str
    target: float | None
    compile_s: dict[str, float] = field(default_factory=dict)
    steps_s: dict[str, list[float]] = field(default_factory=dict)
    differs: float | None = None
    errors: dict[str, str] = field(default_factory=dict)

    def fastest(self, side: str) -> float | None:
        """The minimum: others' work on the machine only ever adds to it."""
        return min(self.steps_s[side], default=None) if side in self.steps_s else None

    def ratio(self) -> float | None:
        ours, xla = self.fastest("distxla"), self.fastest("xla")
        return None if ours is None or xla is None else ours / xla


def measure_kernels(match: str, rounds: int, round_s: float, xla: bool) -> Iterator[MeasuredKernel]:
    """Those whose group or name has `match` in it."""
    wanted = [kernel for kernel in kernel_programs() if match in f"{kernel.group} {kernel.name}"]
    with ExitStack() as stack:
        names = ("distxla", "xla") if xla else ("distxla",)
        sides = {name: stack.enter_context(OneDevice(name)) for name in names}
        for kernel in wanted:
            yield measure_kernel(sides, kernel, rounds, round_s)


def measure_kernel(sides: dict[str, OneDevice], kernel: KernelProgram, rounds: int, round_s: float) -> MeasuredKernel:
    """Compile on both sides, compare the results, then run in turn."""
    measured = MeasuredKernel(kernel.group, kernel.name, kernel.target)
    samples, counts = {}, {}
    for name, side in sides.items():
        try:
            measured.compile_s[name] = side.compile(kernel.text, kernel.integers, kernel.floats)
            samples[name] = side.samples()
            counts[name] = max(1, min(1000, int(round_s / max(min(side.steps(2)), 1e-6))))
            measured.steps_s[name] = []
        except RuntimeError as error:
            measured.errors[name] = str(error)
    for _ in range(rounds):
        for name, count in counts.items():
            measured.steps_s[name] += sides[name].steps(count)
    if len(samples) == 2:
        measured.differs = max(map(_difference, samples["distxla"], samples["xla"]))
    for side in sides.values():
        side.forget()
    return measured


def _difference(ours: list[float], theirs: list[float]) -> float:
    a, b = np.array(ours), np.array(theirs)
    scale = float(np.max(np.abs(b), initial=0.0)) or 1.0
    return float(np.max(np.abs(a - b), initial=0.0)) / scale


def kernel_table(rows: list[MeasuredKernel]) -> Table:
    table = Table(title="kernels, one device on one processor: least processor time", title_justify="left")
    table.add_column("kernel", no_wrap=True)
    for header in ("compile", "XLA", "run", "XLA", "ratio", "target", "differs"):
        table.add_column(header, justify="right")
    group = ""
    for row in rows:
        if group and row.group != group:
            table.add_section()
        group = row.group
        ratio = row.ratio()
        missed = ratio is not None and row.target is not None and ratio > row.target
        table.add_row(
            f"{row.group}: {row.name}",
            *(seconds(row.compile_s.get(side)) for side in ("distxla", "xla")),
            *(seconds(row.fastest(side)) for side in ("distxla", "xla")),
            f"{number(ratio)}{'!' if missed else ''}",
            number(row.target),
            "; ".join(row.errors.values()) or ("-" if row.differs is None else f"{row.differs:.1g}"),
        )
    table.add_section()
    table.add_row("geometric mean", "", "", "", "", number(geometric_mean([row.ratio() for row in rows])), "", "")
    return table
