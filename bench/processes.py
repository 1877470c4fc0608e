"""The tables of several JAX processes: calls and starts, in turn with JAX's CPU backend and its gloo."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from bench.format import number, seconds
from bench.process_members import ROOT, Members
from bench.process_start import LIMIT_S, PHASES
from bench.process_start import SIDES as START_SIDES

DEVICES = 8  # of all processes together
COUNTS = (2, 4)  # of processes
CHAIN = 300  # launches
SIDES = ("distxla", "gloo", "one", "one cpu")
NEW, SEEN = "not seen before", "seen"


@dataclass(frozen=True)
class Measurement:
    """program: of process_side.py.  wait: for each call, else for the last of a chain.  by: the processes that make the
    calls at once; None: all.  has_one: whether a single process can do the same."""

    name: str
    program: str
    wait: bool = True
    by: tuple[int, ...] | None = None
    has_one: bool = True


MEASUREMENTS: dict[int, tuple[Measurement, ...]] = {  # by number of processes
    2: (
        Measurement("psum", "psum", has_one=False),
        Measurement(f"psum, chain of {CHAIN}", "psum", wait=False, has_one=False),
        Measurement("local", "local", by=(0,)),
        Measurement("local psum", "local psum", by=(0,)),
        Measurement("local, in all at once", "local"),
    ),
    4: (
        Measurement("psum", "psum", has_one=False),
        Measurement(f"psum, chain of {CHAIN}", "psum", wait=False, has_one=False),
    ),
}


@dataclass
class MeasuredCalls:
    """Of one call, by side: seconds of each, and processor seconds of all processes together, a value a round."""

    name: str
    processes: int
    wall_s: dict[str, list[float]] = field(default_factory=dict)
    processor_s: dict[str, list[float]] = field(default_factory=dict)

    def median(self, side: str) -> float | None:
        return statistics.median(self.wall_s[side]) if side in self.wall_s else None

    def ratio(self, side: str) -> float | None:
        """distxla's time over that of a side."""
        ours, theirs = self.median("distxla"), self.median(side)
        return None if ours is None or theirs is None else ours / theirs


@dataclass
class MeasuredProcessStart:
    """By side seconds, a value a round: see process_start.py. name: NEW or SEEN."""

    name: str
    processes: int
    wall_s: dict[str, list[float]] = field(default_factory=dict)
    import_s: dict[str, list[float]] = field(default_factory=dict)
    processor_s: dict[str, list[float]] = field(default_factory=dict)
    phases: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def phase(self, side: str, name: str) -> float:
        return statistics.median(each[name] for each in self.phases[side])

    def ratio(self, side: str) -> float | None:
        if side not in self.wall_s or "gloo" not in self.wall_s:
            return None
        return statistics.median(self.wall_s[side]) / statistics.median(self.wall_s["gloo"])


def measure_process_calls(match: str, rounds: int, round_s: float, most: int = 500) -> Iterator[MeasuredCalls]:
    """All measurements whose name has `match` in it, each side in turn in every round, at most so many calls each."""
    for processes, measurements in MEASUREMENTS.items():
        wanted = [each for each in measurements if match in f"{processes} processes: {each.name}"]
        if not wanted:
            continue
        with ExitStack() as stack:
            made = {
                "distxla": Members("distxla", processes, DEVICES // processes),
                "gloo": Members("cpu", processes, DEVICES // processes),
            }
            if any(each.has_one for each in wanted):
                made["one"] = Members("distxla", 1, DEVICES // processes)
                made["one cpu"] = Members("cpu", 1, DEVICES // processes)
            sides = {side: stack.enter_context(members) for side, members in made.items()}
            for each in wanted:
                yield _measured(each, processes, sides, rounds, lambda once: max(1, min(most, int(round_s / once))))


def _measured(
    what: Measurement, processes: int, sides: dict[str, Members], rounds: int, count_of: Callable[[float], int]
) -> MeasuredCalls:
    measured = MeasuredCalls(what.name, processes)
    used = {side: members for side, members in sides.items() if what.has_one or not side.startswith("one")}
    by = {side: (0,) if side.startswith("one") else what.by or tuple(range(processes)) for side in used}
    counts = dict.fromkeys(used, CHAIN)
    for side, members in used.items():
        members.calls(what.program, 1, wait=True, by=by[side])
        once = statistics.median(members.calls(what.program, 5, wait=True, by=by[side]))
        if what.wait:
            counts[side] = count_of(max(once, 1e-6))
        measured.wall_s[side], measured.processor_s[side] = [], []
    for _ in range(rounds):
        for side, members in used.items():
            before = members.processor_s()
            measured.wall_s[side] += members.calls(what.program, counts[side], wait=what.wait, by=by[side])
            spent = members.processor_s() - before
            callers = len(by[side]) if what.has_one else 1  # else all of them make one call together
            measured.processor_s[side].append(spent / (counts[side] + 1) / callers)
    return measured


def process_call_table(rows: list[MeasuredCalls]) -> Table:
    """Medians of one call; ratios of distxla to the others. Processor time is that of one call, in all processes."""
    table = Table(title=f"calls of several processes, {DEVICES} devices in all: medians", title_justify="left")
    table.add_column("call")
    for header in ("processes", "distxla", "gloo", "ratio", "one process", "ratio", "JAX, one", "ratio"):
        table.add_column(header, justify="right")
    for header in ("processors: distxla", "gloo"):
        table.add_column(header, justify="right")
    for row in rows:
        cells = [seconds(row.median("distxla"))]
        for side in SIDES[1:]:
            cells += [seconds(row.median(side)), number(row.ratio(side))]
        busy = [seconds(statistics.median(row.processor_s[side])) for side in ("distxla", "gloo")]
        table.add_row(row.name, str(row.processes), *cells, *busy)
    return table


def measure_process_starts(match: str, rounds: int, processes: int = COUNTS[-1]) -> Iterator[MeasuredProcessStart]:
    """Starts with an empty cache of distxla's, and with what such a start has left there; each side in turn."""
    devices = DEVICES // processes
    measured = {name: MeasuredProcessStart(name, processes) for name in (NEW, SEEN)}
    if match not in f"{processes} processes: start":
        return
    for _ in range(rounds):
        for side in START_SIDES:
            with tempfile.TemporaryDirectory() as cache:
                for name, into in measured.items():
                    if side == "gloo" and name == SEEN:
                        continue  # JAX's CPU backend has no cache unless it is told to
                    found = _started(side, processes, devices, cache)
                    into.wall_s.setdefault(side, []).append(found["wall_s"])
                    into.import_s.setdefault(side, []).append(found["import_s"])
                    into.processor_s.setdefault(side, []).append(found["processor_s"])
                    into.phases.setdefault(side, []).append(found["phases"])
    for times in ("wall_s", "import_s", "processor_s", "phases"):
        getattr(measured[SEEN], times)["gloo"] = getattr(measured[NEW], times)["gloo"]
    yield from measured.values()


def _started(side: str, processes: int, devices: int, cache: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.process_start", side, str(processes), str(devices)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"DISTXLA_CACHE_DIR": cache},
        timeout=2 * LIMIT_S,
    )
    return dict(json.loads(done.stdout))


def process_start_table(rows: list[MeasuredProcessStart]) -> Table:
    """Medians, ratios to gloo's, and how long each phase of the slowest process takes."""
    counts = sorted({row.processes for row in rows})
    title = (
        f"start of {', '.join(map(str, counts))} processes, from the command until all have their first psum: medians"
    )
    table = Table(title=title, title_justify="left")
    for header in ("program", "started by"):
        table.add_column(header)
    for header in ("time", "ratio", "from the import", "processors", *PHASES):
        table.add_column(header, justify="right")
    names = {"distxla": "hand", "launch": "distxla launch", "gloo": "hand, JAX CPU and gloo"}
    for row in rows:
        for side in row.wall_s:
            times = [row.import_s[side], row.processor_s[side]]
            table.add_row(
                row.name,
                names[side],
                seconds(statistics.median(row.wall_s[side])),
                number(row.ratio(side)),
                *(seconds(statistics.median(found)) for found in times),
                *(seconds(row.phase(side, phase)) for phase in PHASES),
            )
    return table
