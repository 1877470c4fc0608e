"""The part of each proxy of a group's hosts in a round: transfers between hosts. Every host makes the same plan.

Copied bytes go once to each host that needs them, in one of three ways:

    EAGER     they are sent with the message that says that a host is ready
    DIRECT    they are sent once both sides are ready, and are written straight to the results
    CHAIN     reductions: the group's order is cut into runs of members on one host. A partial result travels from run
              to run in pieces, and each host reduces its members onto it; the last one has the result and sends it on,
              host by host. So the order of combination is that of the group, left to right, whatever the number of
              hosts, and no host sends more than its part of the result, forwards and backwards at the same time.

Reduces that can't be done two operands at a time (other orders of combination) get all operands, as copies do.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distxla.lazy_dataclass import dataclass
from distxla.program.work_table import COLUMNS, RAGGED_COLUMNS, RoundWork
from distxla.targets.target import LoadedImage

EAGER_ROUND_BYTES = 16 << 10  # of operands that one host sends to another in a round


class Algorithm(Enum):
    """How the bytes of a round travel."""

    EAGER = auto()
    DIRECT = auto()
    CHAIN = auto()


@dataclass(frozen=True)
class LoadedWork:
    """A round's work, and the addresses of the program's functions for it in this process.

    table: the work's, as these functions read it.  do_items, reduction: addresses; 0 where there is no reduction.
    """

    work: RoundWork
    table: NDArray[np.int64]
    do_items: int
    reduction: int
    movements: tuple[PlannedMovement, ...]

    @property
    def needs_operands(self) -> bool:
        """Whether a member's results depend on all members' operands, which the items find in their places."""
        return self.work.element > 0 or bool(self.work.read)


class PlannedMovement(NamedTuple):
    """A row of the work table, and the numbers of its items. All in bytes; see program/work_table.py COLUMNS."""

    first: int
    items_end: int
    operand: int
    operand_step: int
    result: int
    result_step: int
    common: int
    targets: int
    pieces: int
    piece_rows: int
    rows: int
    piece_bytes: int
    row_bytes: int
    source_offset: int
    source_stride: int
    target_offset: int
    target_stride: int
    streamed: int
    begin: int

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def sources(self) -> int:
        """The number of members whose operands items read; 1 also for reductions."""
        return (self.items_end - self.first) // (self.targets * self.pieces)

    def item(self, source: int, target: int) -> int:
        """Number of the first item from a source to a target."""
        return self.first + (source * self.targets + target) * self.pieces


class Rows(NamedTuple):
    """Bytes in a member's buffer: rows of `row` bytes, `stride` apart."""

    leaf: int
    offset: int
    rows: int
    row: int
    stride: int

    @property
    def bytes(self) -> int:
        return self.rows * self.row

    @property
    def is_whole(self) -> bool:
        return self.rows == 1 or self.stride == self.row


class PlannedRegion(NamedTuple):
    """Bytes that go from one member to another host.

    targets: positions there that get them; none where a reduction reads them.  common: leaf of the results' shared
    place, 0 for none.
    """

    source: int
    taken: Rows
    targets: tuple[int, ...]
    given: Rows
    common: int
    streamed: int


class Stream(NamedTuple):
    """A reduction that travels along a group's runs. targets: positions that get its result."""

    taken: Rows
    given: Rows
    targets: tuple[int, ...]
    common: int
    path: tuple[int, ...]  # hosts that the result goes to, in this order, behind the last run's
    streamed: int


@dataclass(frozen=True)
class RoundPlan:
    """One host's view of a round. outgoing, incoming: regions by the other host.  runs: (host, its positions)."""

    loaded: LoadedWork
    algorithm: Algorithm
    outgoing: dict[int, tuple[PlannedRegion, ...]]
    incoming: dict[int, tuple[PlannedRegion, ...]]
    runs: tuple[tuple[int, tuple[int, ...]], ...] = ()
    streams: tuple[Stream, ...] = ()

    @property
    def needs_operands(self) -> bool:
        return self.loaded.needs_operands


def load_work(work: RoundWork, image: LoadedImage) -> LoadedWork:
    """A round of a loaded program."""
    reduction = image.address_of(work.reduction) if work.reduction else 0
    table = np.array([value for row in work.table for value in row], np.int64)
    return LoadedWork(work, table, image.address_of(work.do_items), reduction, _movements(work))


def _movements(work: RoundWork) -> tuple[PlannedMovement, ...]:
    if work.read:
        (row,) = work.table
        columns = dict.fromkeys(PlannedMovement._fields, 0) | {"items_end": work.items, "targets": work.members}
        return (PlannedMovement(**columns | {"pieces": row[RAGGED_COLUMNS.index("pieces")]}),)
    found, first = [], 0
    for row in work.table:
        columns = dict(zip(COLUMNS, row, strict=True))
        found.append(PlannedMovement(**{name: columns[name] for name in PlannedMovement._fields} | {"first": first}))
        first = found[-1].items_end
    return tuple(found)


def make_plan(loaded: LoadedWork, homes: Sequence[int], here: int) -> RoundPlan:
    """The part of the host `here`. homes: the host of each member, in group order."""
    hosts = sorted(set(homes))
    regions = {(a, b): _regions(loaded, homes, a, b) for a in hosts for b in hosts if a != b}
    if max(sum(r.taken.bytes for r in found) for found in regions.values()) <= EAGER_ROUND_BYTES:
        algorithm = Algorithm.EAGER
    elif loaded.work.element and loaded.work.reduction:
        algorithm = Algorithm.CHAIN
    else:
        algorithm = Algorithm.DIRECT
    if algorithm is Algorithm.CHAIN:
        runs: list[tuple[int, tuple[int, ...]]] = []
        for position, host in enumerate(homes):
            if runs and runs[-1][0] == host:
                runs[-1] = (host, (*runs[-1][1], position))
            else:
                runs.append((host, (position,)))
        return RoundPlan(loaded, algorithm, {}, {}, tuple(runs), _streams(loaded, homes, runs))
    outgoing = {b: regions[here, b] for b in hosts if b != here}
    incoming = {a: regions[a, here] for a in hosts if a != here}
    return RoundPlan(loaded, algorithm, outgoing, incoming)


def _rows(m: PlannedMovement, leaf: int, offset: int, stride: int) -> Rows:
    if m.rows == 1:
        return Rows(leaf, offset, 1, m.row_bytes, m.row_bytes)
    return Rows(leaf, offset, m.rows, m.row_bytes, stride)


def _regions(loaded: LoadedWork, homes: Sequence[int], a: int, b: int) -> tuple[PlannedRegion, ...]:
    """The bytes of members on host a that members on host b need."""
    found = []
    if loaded.work.read:
        nowhere = Rows(0, 0, 1, 0, 0)
        for s in (s for s, host in enumerate(homes) if host == a):
            for leaf, size in enumerate(loaded.work.read):
                if size:
                    found.append(PlannedRegion(s, Rows(leaf, 0, 1, size, size), (), nowhere, 0, 0))
        return tuple(found)
    for m in loaded.movements:
        reduces = loaded.work.element > 0
        sources = range(len(homes)) if reduces else range(m.sources)
        there = tuple(position for position, host in enumerate(homes) if host == b)
        receivers = [(t, (t,)) for t in there] if m.targets > 1 else [(0, there)]
        for s in (s for s in sources if homes[s] == a):
            for t, targets in receivers:
                taken = _rows(m, m.operand + t * m.operand_step, m.begin + t * m.source_offset, m.source_stride)
                given = _rows(m, m.result + s * m.result_step, m.begin + s * m.target_offset, m.target_stride)
                common = 0 if m.targets > 1 else m.common
                found.append(PlannedRegion(s, taken, () if reduces else targets, given, common, m.streamed))
    return tuple(found)


def _streams(loaded: LoadedWork, homes: Sequence[int], runs: list[tuple[int, tuple[int, ...]]]) -> tuple[Stream, ...]:
    last = runs[-1][0]
    found = []
    for m in loaded.movements:
        all_members = tuple(range(len(homes)))
        for t, targets in [(t, (t,)) for t in all_members] if m.targets > 1 else [(0, all_members)]:
            taken = _rows(m, m.operand + t * m.operand_step, m.begin + t * m.source_offset, m.source_stride)
            given = _rows(m, m.result, m.begin, m.target_stride)
            # backwards along the runs, so that every connection carries partial results one way and results the other
            order = [host for host, _ in reversed(runs)]
            path = tuple(h for h in dict.fromkeys(order) if h != last and any(homes[p] == h for p in targets))
            common = 0 if m.targets > 1 else m.common
            found.append(Stream(taken, given, targets, common, path, m.streamed))
    return tuple(found)
