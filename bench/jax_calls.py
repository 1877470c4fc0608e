"""A call of a JAX function: `distxla.jax` and the PJRT plugin beside JAX's CPU backend, in turn."""

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

COUNTS = (8, 1)  # of devices
NAMES = ("psum", "mlp", "ring")  # see jax_programs.py, which imports JAX
SIDES = {"dxj": "distxla.jax", "plugin": "the plugin", "xla": "JAX's CPU backend"}


@dataclass
class MeasuredCall:
    """Seconds of a call by side: each with its result waited for, and in a row of calls of which only the last is."""

    name: str
    devices: int
    waited_s: dict[str, list[float]] = field(default_factory=dict)
    in_a_row_s: dict[str, list[float]] = field(default_factory=dict)


def measure_jax_calls(match: str, rounds: int, round_s: float) -> Iterator[MeasuredCall]:
    """All programs whose name has `match` in it, on each number of devices, each side in turn in every round."""
    for devices in COUNTS:
        with ExitStack() as stack:
            sides = {side: stack.enter_context(_side(side, devices)) for side in SIDES}
            for name in (name for name in NAMES if match in name):
                measured = MeasuredCall(name, devices, {s: [] for s in sides}, {s: [] for s in sides})
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
    """Medians, and ratios to JAX's CPU backend; geometric means of these for each number of devices."""
    table = Table(title="calls of JAX functions: medians, beside JAX's CPU backend (JAX)", title_justify="left")
    table.add_column("function")
    for header in ("devices", "distxla.jax", "ratio", "plugin", "ratio", "JAX"):
        table.add_column(header, justify="right")
    for header in ("in a row: distxla.jax", "ratio", "plugin", "ratio", "JAX"):
        table.add_column(header, justify="right")
    for devices in dict.fromkeys(row.devices for row in rows):
        ratios: tuple[list[float], ...] = ([], [], [], [])
        for row in (row for row in rows if row.devices == devices):
            cells = []
            for k, times in enumerate((row.waited_s, row.in_a_row_s)):
                medians = {side: statistics.median(times[side]) for side in SIDES}
                for n, side in enumerate(("dxj", "plugin")):
                    ratio = medians[side] / medians["xla"]
                    ratios[2 * k + n].append(ratio)
                    cells += [seconds(medians[side]), number(ratio)]
                cells.append(seconds(medians["xla"]))
            table.add_row(row.name, str(devices), *cells)
        means = [number(geometric_mean(found)) for found in ratios]
        table.add_row("geometric mean", str(devices), "", means[0], "", means[1], "", "", means[2], "", means[3], "")
        table.add_section()
    return table


@contextmanager
def _side(name: str, devices: int) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if name == "xla":
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    if name == "plugin":
        environment |= {"JAX_PLATFORMS": "distxla", "DISTXLA_DEVICES": str(devices)}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.jax_side", name, str(devices)],
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
