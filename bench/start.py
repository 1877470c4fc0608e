"""The table of starts: whole processes, from the command to the result of an all-reduce of four floats a device."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from rich.table import Table

import distxla as dx
from bench.format import number, seconds

DEVICES = (8, 64)
SIDES = ("distxla", "xla")
LIMIT_S = 600

PROGRAM = """HloModule start, replica_count={devices}
add {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={{}}, to_apply=add }}
"""
JAX = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, numpy as np
step = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
print(np.asarray(step(np.ones(({devices}, 4), np.float32)))[0])
"""


@dataclass
class MeasuredStart:
    """Seconds by side, `distxla` and `xla`: wall-clock and processor time of all processes, one value a round.

    close_s: to take the cluster down.  replica_bytes: memory of a replica, shared pages in proportion (PSS).
    """

    devices: int
    wall_s: dict[str, list[float]] = field(default_factory=dict)
    processor_s: dict[str, list[float]] = field(default_factory=dict)
    close_s: list[float] = field(default_factory=list)
    replica_bytes: float = 0.0

    def ratio(self) -> float | None:
        """Ratio of the medians of wall-clock times."""
        if len(self.wall_s) < 2:
            return None
        return statistics.median(self.wall_s["distxla"]) / statistics.median(self.wall_s["xla"])


def measure_starts(match: str, rounds: int, xla: bool) -> Iterator[MeasuredStart]:
    """Measure both sides alternately; distxla's program is in the cache."""
    for devices in DEVICES:
        if match not in f"{devices} devices":
            continue
        measured = MeasuredStart(devices)
        with tempfile.TemporaryDirectory() as folder:
            module = Path(folder, "start.hlo")
            module.write_text(PROGRAM.format(devices=devices))
            commands = {"distxla": [sys.executable, "-m", "distxla", "run", str(module)]}
            if xla:
                commands["xla"] = [sys.executable, "-c", JAX.format(devices=devices)]
            for command in commands.values():
                run(command)  # into the caches
            for _ in range(rounds):
                for side, command in commands.items():
                    wall, processor = run(command)
                    measured.wall_s.setdefault(side, []).append(wall)
                    measured.processor_s.setdefault(side, []).append(processor)
        for _ in range(rounds):
            look(measured)
        yield measured


def run(command: list[str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of a process and of all below it, with byte code in Python's caches."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begin = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S, env=environment)
    wall, after = time.perf_counter() - begin, getrusage(RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def look(measured: MeasuredStart) -> None:
    """Measure the memory of a cluster's replicas and the time to close it."""
    cluster = dx.Cluster(measured.devices).start()
    try:
        sizes = [proportional_bytes(pid) for _, _, pid in cluster.replicas_info]
        measured.replica_bytes = sum(sizes) / len(sizes)
    finally:
        begin = time.perf_counter()
        cluster.close()
        measured.close_s.append(time.perf_counter() - begin)


def proportional_bytes(pid: int) -> int:
    """PSS of a process."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def start_table(rows: list[MeasuredStart]) -> Table:
    table = Table(title="starts, processes from the command to the result: medians", title_justify="left")
    table.add_column("devices", justify="right")
    for header in ("distxla run", "JAX", "ratio", "processors", "JAX", "close", "PSS a replica"):
        table.add_column(header, justify="right")
    for row in rows:
        sides = [seconds(statistics.median(row.wall_s[side]) if side in row.wall_s else None) for side in SIDES]
        busy = [seconds(statistics.median(row.processor_s[side]) if side in row.wall_s else None) for side in SIDES]
        close, size = seconds(statistics.median(row.close_s)), f"{row.replica_bytes / 1e6:.1f} MB"
        table.add_row(str(row.devices), *sides, number(row.ratio()), *busy, close, size)
    return table
