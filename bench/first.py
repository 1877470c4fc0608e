"""The table of first calls: fresh processes of JAX on the plugin's devices, in turn with JAX's CPU backend."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.format import geometric_mean, number, seconds

ROOT = Path(__file__).parent.parent
NAMES = ("devices", "small jits", "sharded jits", "eager", "constant", "transformer", "convolutions")
SIDES = {"new": "not seen before", "seen": "in a second process", "xla": "JAX's CPU backend"}
LIMIT_S = 600
MOST_ROUNDS = 3


@dataclass
class MeasuredFirst:
    """Seconds by side: `new` with an empty cache, `seen` with what that process has left there, `xla`."""

    name: str
    wall_s: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})

    def median(self, side: str) -> float:
        return statistics.median(self.wall_s[side])

    def ratio(self, side: str) -> float:
        return self.median(side) / self.median("xla")


def measure_first(match: str, rounds: int) -> Iterator[MeasuredFirst]:
    """All programs whose name has `match` in it, each side in turn in every round."""
    for name in (name for name in NAMES if match in name):
        measured = MeasuredFirst(name)
        for _ in range(min(rounds, MOST_ROUNDS)):
            cache = tempfile.mkdtemp()
            try:
                for side, found in measured.wall_s.items():
                    found.append(_run(name, side, cache))
            finally:
                shutil.rmtree(cache)
        yield measured


def _run(name: str, side: str, cache: str) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    if side != "xla":
        environment |= {"JAX_PLATFORMS": "distxla", "DISTXLA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-m", "bench.first_programs", name],
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
        cwd=ROOT,
    )
    return float(done.stdout.splitlines()[-1])


def first_table(rows: list[MeasuredFirst]) -> Table:
    """Medians, and ratios to JAX's CPU backend; geometric means of these."""
    table = Table(title="first calls in a fresh process: medians, beside JAX's CPU backend (JAX)", title_justify="left")
    table.add_column("program")
    for header in ("not seen before", "ratio", "in a second process", "ratio", "JAX"):
        table.add_column(header, justify="right")
    for row in rows:
        cells = [cell for side in ("new", "seen") for cell in (seconds(row.median(side)), number(row.ratio(side)))]
        table.add_row(row.name, *cells, seconds(row.median("xla")))
    means = [number(geometric_mean([row.ratio(side) for row in rows])) for side in ("new", "seen")]
    table.add_row("geometric mean", "", means[0], "", means[1], "")
    return table
