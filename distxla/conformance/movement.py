"""all-gather, all-to-all, collective-broadcast: bits are moved, none is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distxla.conformance.case import Case
from distxla.conformance.groups import ALL, EVEN_AXIS, EVEN_FLAT, SUBGROUPS, Groups
from distxla.conformance.program_text import Collective, case_of
from distxla.conformance.values import bits
from distxla.ir.element_type import DATA_TYPES, F32, S8, element_type
from distxla.ir.shape import Shape

# what a case is called, operand's sizes, the dimension
GATHERED = (
    ("dimension-0", (2, 3), 0),
    ("dimension-1", (2, 3), 1),
    ("middle-dimension", (2, 1, 3), 1),
    ("rank-1", (5,), 0),
    ("one-element", (1,), 0),
    ("empty", (0, 3), 0),
    ("empty-elsewhere", (2, 0), 0),
    ("large", (10_007, 3), 0),
)
EXCHANGED = (
    ("dimension-0", (4, 3), 0),
    ("dimension-1", (3, 8), 1),
    ("middle-dimension", (2, 4, 3), 1),
    ("rank-1", (8,), 0),
    ("empty", (0, 3), 0),
    ("empty-elsewhere", (4, 0), 0),
    ("large", (4_004, 5), 0),
)
BROADCAST = (
    ("rank-0", ()),
    ("rank-1", (5,)),
    ("rank-3", (2, 1, 3)),
    ("empty", (0, 3)),
    ("large", (20_011,)),
)
# devices that are in no group get zeros
PARTLY = (
    Groups("not-all", 4, 1, "replica_groups={{2,0}}", 2),
    Groups("one-of-four", 4, 1, "replica_groups={{1}}", 1),
    Groups("partitions-not-all", 2, 3, "channel_id=1, replica_groups={{2,1}}", 2),
)


def _times(dims: Sequence[int], dimension: int, count: int) -> tuple[int, ...]:
    return tuple(size * count if d == dimension else size for d, size in enumerate(dims))


def gathering(groups: Groups, dimension: int, *operands: Shape) -> Collective:
    """The all-gather of some operands along one dimension."""
    results = tuple(Shape(s.element_type, _times(s.dims, dimension, groups.size)) for s in operands)
    return Collective("all-gather", operands, results, f"{groups.attributes}, dimensions={{{dimension}}}")


def exchange(groups: Groups, dimension: int, operand: Shape) -> Collective:
    """The all-to-all of one array, cut and joined along one dimension."""
    return Collective("all-to-all", (operand,), (operand,), f"{groups.attributes}, dimensions={{{dimension}}}")


def tuple_exchange(groups: Groups, operand: Shape) -> Collective:
    """The all-to-all of a tuple: an array for each member."""
    operands = (operand,) * groups.size
    return Collective("all-to-all", operands, operands, groups.attributes, is_tuple=True)


def broadcast(groups: Groups, operand: Shape) -> Collective:
    """The collective-broadcast of each group's first member."""
    return Collective("collective-broadcast", (operand,), (operand,), groups.attributes)


def all_gathers() -> Iterator[Case]:
    """all-gather."""
    for groups in EVEN_FLAT:
        yield _moved(groups, gathering(groups, 0, Shape(F32, (2, 3))), "dimension-0")
    for kind in DATA_TYPES:
        if kind is not F32:
            yield _moved(ALL, gathering(ALL, 0, Shape(kind, (2, 3))), "dimension-0")
    for what, dims, dimension in GATHERED[1:]:
        yield _moved(SUBGROUPS, gathering(SUBGROUPS, dimension, Shape(F32, dims)), what)
    yield _moved(ALL, gathering(ALL, 1, Shape(F32, (2, 3)), Shape(F32, (1, 5))), "variadic")
    yield _moved(ALL, gathering(ALL, 0, Shape(F32, (2,)), Shape(S8, (1, 3))), "variadic-of-two-types")


def all_to_alls() -> Iterator[Case]:
    """all-to-all, of an array and of a tuple."""
    for groups in EVEN_AXIS:
        operand = Shape(F32, (groups.size * 2, 3))
        yield _moved(groups, exchange(groups, 0, operand), "dimension-0")
        yield _moved(groups, tuple_exchange(groups, Shape(F32, (2, 3))), "tuple")
    for kind in DATA_TYPES:
        if kind is not F32:
            yield _moved(ALL, exchange(ALL, 0, Shape(kind, (4, 3))), "dimension-0")
    for what, dims, dimension in EXCHANGED[1:]:
        yield _moved(SUBGROUPS, exchange(SUBGROUPS, dimension, Shape(F32, dims)), what)
    for kind in map(element_type, ("pred", "s4", "bf16", "f64")):
        yield _moved(ALL, tuple_exchange(ALL, Shape(kind, (3,))), "tuple")
    yield _moved(ALL, tuple_exchange(ALL, Shape(F32)), "tuple-of-rank-0")
    yield _moved(ALL, tuple_exchange(ALL, Shape(F32, (0,))), "tuple-of-empty")


def collective_broadcasts() -> Iterator[Case]:
    """collective-broadcast."""
    for groups in (*EVEN_AXIS, *PARTLY):
        yield _moved(groups, broadcast(groups, Shape(F32, (2, 3))), "rank-2")
    for kind in DATA_TYPES:
        if kind is not F32:
            yield _moved(ALL, broadcast(ALL, Shape(kind, (2, 3))), "rank-2")
    for what, dims in BROADCAST:
        yield _moved(SUBGROUPS, broadcast(SUBGROUPS, Shape(F32, dims)), what)


def _moved(groups: Groups, collective: Collective, what: str) -> Case:
    kind = collective.operands[0].dtype
    return case_of(f"{collective.opcode}/{groups.name}/{kind}/{what}", groups, collective, bits)
