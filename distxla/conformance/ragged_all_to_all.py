"""ragged-all-to-all: rows of different number for each member."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distxla.conformance.case import Case
from distxla.conformance.groups import ALL, BY_NAME, Groups
from distxla.conformance.program_text import Collective, case_of
from distxla.conformance.values import Values, given
from distxla.ir.element_type import F32, S32, S64, element_type
from distxla.ir.shape import Shape

Table = Sequence[Sequence[int]]

# [sender][receiver], by place in the group: how many rows
SIZES: tuple[tuple[str, Groups, Table], ...] = (
    ("even", ALL, ((2, 2, 2, 2),) * 4),
    ("uneven", ALL, ((1, 0, 2, 3), (0, 4, 1, 1), (2, 2, 0, 0), (3, 1, 1, 2))),
    ("nothing", ALL, ((0, 0, 0, 0),) * 4),
    ("to-the-first", ALL, ((2, 0, 0, 0), (1, 0, 0, 0), (3, 0, 0, 0), (2, 0, 0, 0))),
    ("uneven", BY_NAME["partitions"], ((1, 0, 2, 3), (0, 4, 1, 1), (2, 2, 0, 0), (3, 1, 1, 2))),
    ("uneven", BY_NAME["pairs"], ((1, 3), (4, 0))),
    ("uneven", BY_NAME["one-device"], ((3,),)),
)
ROWS = 8


def cases() -> Iterator[Case]:
    """All of this file."""
    for name, groups, sizes in SIZES:
        yield _case(name, groups, sizes, Shape(F32, (ROWS, 2)), Shape(S32, (len(sizes),)))
    _, groups, sizes = SIZES[1]
    for kind in map(element_type, ("pred", "s8", "bf16", "f64", "c64")):
        yield _case("uneven", groups, sizes, Shape(kind, (ROWS, 3)), Shape(S32, (4,)))
    yield _case("uneven-rank-1", groups, sizes, Shape(F32, (ROWS,)), Shape(S32, (4,)))
    yield _case("uneven-s64-tables", groups, sizes, Shape(F32, (ROWS, 2)), Shape(S64, (4,)))


def _case(name: str, groups: Groups, sizes: Table, data: Shape, table: Shape) -> Case:
    operands = (data, data, table, table, table, table)
    collective = Collective("ragged-all-to-all", operands, (data,), groups.attributes)
    return case_of(f"ragged-all-to-all/{groups.name}/{data.dtype}/{name}", groups, collective, _tables(groups, sizes))


def _tables(groups: Groups, sizes: Table) -> Values:
    """Senders send from the beginning of their input, receivers keep what they get in the order of the senders."""
    members = range(len(sizes))
    starts = [[sum(sizes[s][:r]) for r in members] for s in members]
    targets = [[sum(row[r] for row in sizes[:s]) for r in members] for s in members]
    received = [[sizes[s][r] for s in members] for r in members]
    places = [device % len(sizes) for device in range(groups.devices)]  # neighbours are a group
    return given([], [], *([table[place] for place in places] for table in (starts, sizes, targets, received)))
