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
Turn = Callable[[], list[float]]


@dataclass
class MeasuredLoop:
    """Seconds of one trip, by side and turn; nothing of a side that has no such collective."""

    collective: str
    members: int
    size: str
    steps_s: dict[str, list[float]] = field(default_factory=dict)

    def least(self, side: str) -> float | None:
        """The least; others' work on the machine only ever adds to it."""
        return min(self.steps_s[side], default=None) if side in self.steps_s else None

    def ratio(self, side: str) -> float | None:
        ours, theirs = self.least("distxla"), self.least(side)
        return None if ours is None or theirs is None else ours / theirs


def sides_here(xla: bool) -> tuple[list[str], list[str]]:
    """Sides that can run here, and a line about each of the others."""
    reasons = {kind: missing(kind) for kind in KINDS} | {"xla": None if xla else "JAX is not wanted or not installed"}
    found = [side for side in SIDES if reasons.get(side) is None]
    return found, [f"no {TITLES[side]}: {reason}" for side, reason in reasons.items() if reason is not None]


def measure_collectives(
    match: str,
    rounds: int,
    round_s: float,
    sides: list[str],
    members: tuple[int, ...] = MEMBERS,
    say: Callable[[str], None] = print,
    backend: str = "cpu",
) -> Iterator[MeasuredLoop]:
    """Those whose "COLLECTIVE, N members, SIZE" has `match` in it. say: told what can't be started.  backend: of
    distxla."""
    for count in members:
        made = loops(count, after_kernels=backend != "cpu")
        wanted = [loop for loop in made if match in f"{loop.collective}, {count} members, {loop.size}"]
        if not wanted:
            continue
        with ExitStack() as stack:
            programs: dict[str, Side] = {"distxla": stack.enter_context(Ours(count, backend))}
            if "xla" in sides:
                programs["xla"] = stack.enter_context(Xla(count))
            peers = {}
            for kind in KINDS:
                if kind in sides:
                    try:
                        peers[kind] = stack.enter_context(Peers(kind, count))
                    except RuntimeError as error:
                        say(str(error))
            for loop in wanted:
                yield measure_loop(programs, peers, loop, rounds, round_s)


def measure_loop(
    programs: dict[str, Side], peers: dict[str, Peers], loop: Loop, rounds: int, round_s: float
) -> MeasuredLoop:
    measured = MeasuredLoop(loop.collective, loop.members, loop.size)
    # zeros stay zeros, however often they are added
    arguments: Arguments = [[np.zeros(loop.dims, np.float32), np.array(loop.trips, np.int32)]] * loop.members
    turns: dict[str, Turn] = {}
    for name, side in programs.items():
        try:
            side.compile(loop.text, arguments)
        except RuntimeError:  # XLA CPU has no collective-broadcast
            continue
        count = _fitting(round_s, min(side.steps(3)))
        turns[name] = lambda side=side, count=count: [s / loop.trips for s in side.steps(count)]  # type: ignore[misc]
    asked = (loop.collective.partition(",")[0], loop.size_bytes)
    for kind, processes in peers.items():
        try:
            trips = _fitting(round_s / 4, min(processes.steps(*asked, 1, 3)), loop.trips)
        except RuntimeError:  # no such collective there
            continue
        turns[kind] = lambda processes=processes, trips=trips: [  # type: ignore[misc]
            s / trips for s in processes.steps(*asked, trips, 4)
        ]
    measured.steps_s = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            measured.steps_s[name] += turn()
    return measured


def _fitting(wanted_s: float, once_s: float, most: int = 500) -> int:
    """How often something goes into a time, at least once."""
    return max(1, min(most, int(wanted_s / max(once_s, 1e-6))))


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
