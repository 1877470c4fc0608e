"""The table of `distxla check`: large programs, each checked by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bench.check_programs import SHAPES, Checked, make
from bench.format import seconds

DEVICES, INSTRUCTIONS = 1008, 1008  # 8 stages of 126 devices; what each device executes


@dataclass
class MeasuredCheck:
    """wall_s, processor_s: of the whole process.  memory_bytes: its largest resident size.  outcome: what it said."""

    name: str
    text_bytes: int
    wall_s: float
    processor_s: float
    memory_bytes: int
    outcome: str


def measure_checks(match: str, devices: int = DEVICES, instructions: int = INSTRUCTIONS) -> Iterator[MeasuredCheck]:
    """Those whose name has `match` in it."""
    for name in SHAPES:
        if match in name:
            yield _measure(make(name, devices, instructions))


def _measure(checked: Checked) -> MeasuredCheck:
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for number, (first, last, text) in enumerate(checked.programs):
            path = Path(folder) / f"{number}.hlo"
            path.write_text(text)
            names.append(f"{path}@{first}-{last}" if len(checked.programs) > 1 else str(path))
        command = [sys.executable, "-c", "from distxla.__main__ import main; main()", "check", "--json"]
        command += [*names, "--replicas", str(checked.devices)]
        begin = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0  # it has been waited for
            wall_s = time.perf_counter() - begin
            output.seek(0)
            outcome = json.loads(output.read())["outcome"]
        if outcome != checked.outcome:
            raise AssertionError(f"{checked.name}: {outcome}, it is {checked.outcome}")
        size = sum(len(text) for _, _, text in checked.programs)
        return MeasuredCheck(
            checked.name, size, wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, outcome
        )


def check_table(rows: list[MeasuredCheck]) -> Table:
    title = f"distxla check of {DEVICES} devices with {INSTRUCTIONS} communicating instructions each, whole processes"
    table = Table(title=title, title_justify="left")
    for head in ("program", "text", "verdict", "wall", "processor", "memory"):
        table.add_column(head, justify="left" if head in ("program", "verdict") else "right")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.text_bytes / 1e6:.2f} MB",
            row.outcome,
            seconds(row.wall_s),
            seconds(row.processor_s),
            f"{row.memory_bytes / 2**20:.0f} MiB",
        )
    return table
