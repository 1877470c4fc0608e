"""A call of a JAX function: `distxla.jax` beside JAX's CPU backend, in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.format import geometric_mean, number, seconds

DEVICES = 8
NAMES = ("psum", "mlp", "ring")  # see jax_programs.py, which imports JAX
SIDES = ("dxj", "xla")


@dataclass
class MeasuredCall:
    """Seconds of a call by side: each with its result waited for, and in a row of calls of which only the last is."""

    name: str
    waited_s: dict[str, list[float]] = field(default_factory=dict)
    in_a_row_s: dict[str, list[float]] = field(default_factory=dict)


def measure_jax_calls(match: str, rounds: int, round_s: float) -> Iterator[MeasuredCall]:
    """All programs whose name has `match` in it, each side in turn in every round."""
    with ExitStack() as stack:
        sides = {side: stack.enter_context(_side(side)) for side in SIDES}
        for name in (name for name in NAMES if match in name):
            measured = MeasuredCall(name, {s: [] for s in sides}, {s: [] for s in sides})
            counts = {}
            for side, process in sides.items():
                once = statistics.median(_ask(process, name, 10, wait=True))
                counts[side] = max(1, min(500, int(round_s / 2 / max(once, 1e-6))))
            for _ in range(rounds):
                for side, process in sides.items():
                    measured.waited_s[side] += _ask(process, name, counts[side], wait=True)
                    measured.in_a_row_s[side] += _ask(process, name, counts[side], wait=False)
            yield measured


def jax_call_table(rows: list[MeasuredCall]) -> Table:
    table = Table(title=f"calls of JAX functions, {DEVICES} devices: medians", title_justify="left")
    table.add_column("function")
    for header in ("distxla.jax", "JAX's CPU backend", "ratio", "in a row", "JAX's CPU backend", "ratio"):
        table.add_column(header, justify="right")
    ratios: tuple[list[float], list[float]] = ([], [])
    for row in rows:
        cells = []
        for k, times in enumerate((row.waited_s, row.in_a_row_s)):
            ours, theirs = (statistics.median(times[side]) for side in SIDES)
            ratios[k].append(ours / theirs)
            cells += [seconds(ours), seconds(theirs), number(ours / theirs)]
        table.add_row(row.name, *cells)
    table.add_section()
    means = [number(geometric_mean(found)) for found in ratios]
    table.add_row("geometric mean", "", "", means[0], "", "", means[1])
    return table


@contextmanager
def _side(name: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if name == "xla":
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.jax_side", name, str(DEVICES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parent.parent,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _ask(process: subprocess.Popen[str], name: str, count: int, *, wait: bool) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"program": name, "count": count, "wait": wait}) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"{process.args}: ended with status {process.wait()}")
    found: dict[str, Any] = json.loads(answer)
    return [float(s) for s in found["seconds"]]
