"""The table of collectives inside a loop: distxla, XLA CPU, MPI and gloo in turn, so that a busy minute hits all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from bench.collective_programs import Loop, loops
from bench.format import number, seconds
from bench.ours import Ours
from bench.peers import KINDS, Peers, missing
from bench.side import Arguments, Side
from bench.xla import Xla

MEMBERS = (2, 8)
SIDES = ("distxla", "xla", *KINDS)
TITLES = {"distxla": "distxla", "xla": "XLA", "mpi": "MPI", "gloo": "gloo"}
Steps = Callable[[int], list[float]]


@dataclass
class MeasuredLoop:
    """Seconds of one loop's turns by side; nothing of a side that has no such collective."""

    collective: str
    members: int
    size: str
    trips: int
    steps_s: dict[str, list[float]] = field(default_factory=dict)

    def least(self, side: str) -> float | None:
        """Of one trip; others' work on the machine only ever adds to it."""
        return min(self.steps_s[side]) / self.trips if self.steps_s.get(side) else None

    def ratio(self, side: str) -> float | None:
        ours, theirs = self.least("distxla"), self.least(side)
        return None if ours is None or theirs is None else ours / theirs


def sides_here(xla: bool) -> tuple[list[str], list[str]]:
    """Sides that can run here, and a line about each of the others."""
    reasons = {kind: missing(kind) for kind in KINDS} | {"xla": None if xla else "JAX is not wanted or not installed"}
    found = [side for side in SIDES if reasons.get(side) is None]
    return found, [f"no {TITLES[side]}: {reason}" for side, reason in reasons.items() if reason is not None]


def measure_collectives(
    match: str, rounds: int, round_s: float, sides: list[str], members: tuple[int, ...] = MEMBERS
) -> Iterator[MeasuredLoop]:
    """Those whose "COLLECTIVE, N members, SIZE" has `match` in it."""
    for count in members:
        wanted = [loop for loop in loops(count) if match in f"{loop.collective}, {count} members, {loop.size}"]
        if not wanted:
            continue
        with ExitStack() as stack:
            programs: dict[str, Side] = {"distxla": stack.enter_context(Ours(count))}
            if "xla" in sides:
                programs["xla"] = stack.enter_context(Xla(count))
            peers = {kind: stack.enter_context(Peers(kind, count)) for kind in KINDS if kind in sides}
            for loop in wanted:
                yield measure_loop(programs, peers, loop, rounds, round_s)


def measure_loop(
    programs: dict[str, Side], peers: dict[str, Peers], loop: Loop, rounds: int, round_s: float
) -> MeasuredLoop:
    measured = MeasuredLoop(loop.collective, loop.members, loop.size, loop.trips)
    arguments: Arguments = [
        [
            np.zeros(loop.dims, np.float32),
            np.array(loop.trips, np.int32),
        ]  # zeros stay zeros, however often they are added
    ] * loop.members
    running: dict[str, tuple[Steps, int]] = {}
    for name, side in programs.items():
        try:
            side.compile(loop.text, arguments)
        except RuntimeError:  # XLA CPU has no collective-broadcast
            continue
        running[name] = (side.steps, 0)
    name_for_peers = loop.collective.partition(",")[0]
    for kind, processes in peers.items():

        def steps(count: int, processes: Peers = processes) -> list[float]:
            return processes.steps(name_for_peers, loop.size_bytes, loop.trips, count)

        running[kind] = (steps, 0)
    for name, (run, _) in list(running.items()):
        try:
            once = min(run(2))
        except RuntimeError:  # no such collective there
            del running[name]
            continue
        running[name] = (run, max(1, min(500, int(round_s / max(once, 1e-6)))))
    measured.steps_s = {name: [] for name in running}
    for _ in range(rounds):
        for name, (run, count) in running.items():
            measured.steps_s[name] += run(count)
    return measured


def collective_table(rows: list[MeasuredLoop], sides: list[str]) -> Table:
    table = Table(title="collectives inside a loop: the least time of one trip", title_justify="left")
    table.add_column("collective")
    for header in ("members", "size", *(TITLES[side] for side in sides)):
        table.add_column(header, justify="right")
    for side in sides[1:]:
        table.add_column(f"to {TITLES[side]}", justify="right")
    before = ("", 0)
    for row in rows:
        if before[0] and before != (row.collective, row.members):
            table.add_section()
        before = (row.collective, row.members)
        times = [seconds(row.least(side)) for side in sides]
        table.add_row(row.collective, str(row.members), row.size, *times, *(number(row.ratio(s)) for s in sides[1:]))
    return table
