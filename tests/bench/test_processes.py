"""Several processes make the calls that are timed, and start; the tables show medians and ratios."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console
from rich.table import Table

from bench.process_members import PLATFORMS, ROOT, Members
from bench.process_start import PHASES
from bench.process_start import SIDES as START_SIDES
from bench.processes import (
    COUNTS,
    MEASUREMENTS,
    NEW,
    SEEN,
    SIDES,
    MeasuredCalls,
    MeasuredProcessStart,
    measure_process_calls,
    process_call_table,
    process_start_table,
)

PROGRAMS = sorted({each.program for measurements in MEASUREMENTS.values() for each in measurements})


def printed(table: Table) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
def test_two_processes_make_the_calls(platform: str) -> None:
    with Members(platform, 2, 1) as members:
        for program in PROGRAMS:
            assert len(members.calls(program, 3, wait=True, by=(0, 1))) == 3
            assert len(members.calls(program, 3, wait=False, by=(0, 1))) == 1
        assert len(members.calls("local", 2, wait=True, by=(1,))) == 2
        assert members.processor_s() > 0


@pytest.mark.exhaustive
def test_an_ended_process_is_told() -> None:
    with Members("cpu", 1, 1) as members, pytest.raises(RuntimeError, match="process 0 of 1 on cpu has ended"):
        members.calls("unknown", 1, wait=True, by=(0,))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_all_sides_are_measured() -> None:
    rows = list(measure_process_calls("2 processes: ", 1, 0.0, most=2))
    assert [row.name for row in rows] == [each.name for each in MEASUREMENTS[2]]
    for row, measurement in zip(rows, MEASUREMENTS[2]):
        assert tuple(row.wall_s) == (SIDES if measurement.has_one else SIDES[:2])
        assert all(found > 0 for times in row.wall_s.values() for found in times)
        assert row.name in printed(process_call_table([row]))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("side", START_SIDES)
def test_processes_start(side: str) -> None:
    command = [sys.executable, "-m", "bench.process_start", side, "2", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert tuple(found["phases"]) == PHASES
    assert found["wall_s"] > found["import_s"] > 0
    assert found["processor_s"] > 0


def test_the_table_of_calls_shows_medians_and_ratios() -> None:
    times = {"distxla": [1e-4, 3e-4, 2e-4], "gloo": [4e-4], "one": [1e-4], "one cpu": [8e-4]}
    rows = [
        MeasuredCalls(each.name, count, times if each.has_one else dict(list(times.items())[:2]), times)
        for count in COUNTS
        for each in MEASUREMENTS[count]
    ]
    text = printed(process_call_table(rows))
    assert text.count("0.50") == len(rows)
    assert text.count("2.00") == text.count("0.25") == sum(each.has_one for each in MEASUREMENTS[2])


def test_the_table_of_starts_shows_medians_and_ratios() -> None:
    wall = {"distxla": [3.0, 2.0, 4.0], "launch": [1.0], "gloo": [2.0]}
    phases = {side: [dict.fromkeys(PHASES, 0.25)] for side in wall}
    rows = [MeasuredProcessStart(name, 4, wall, wall, wall, phases) for name in (NEW, SEEN)]
    text = printed(process_start_table(rows))
    assert text.count("1.50") == text.count("0.50") == 2
    assert text.count("250 ms") == 2 * len(wall) * len(PHASES)
