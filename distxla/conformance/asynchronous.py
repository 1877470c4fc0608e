"""Collectives that are started and done: pairs of their own opcodes, and async-start around a computation."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.conformance import all_reduce, collective_permute, movement, reduce_scatter
from distxla.conformance.case import Case
from distxla.conformance.groups import ALL, BY_NAME, SUBGROUPS, Groups
from distxla.conformance.program_text import Collective, computation, one_or_tuple, parameters, program
from distxla.conformance.values import Values, bits, exact_sums
from distxla.ir.element_type import BF16, F32, S32
from distxla.ir.shape import Shape

X = Shape(F32, (4, 3))
CHAIN = collective_permute.PERMUTES[2]

# opcodes with -start and -done
PAIRS: tuple[tuple[str, Groups, Collective, Values], ...] = (
    ("f32/add", ALL, all_reduce.of(ALL, "add", X), exact_sums),
    ("bf16/max", SUBGROUPS, all_reduce.of(SUBGROUPS, "max", Shape(BF16, (5,))), exact_sums),
    ("f32/add", BY_NAME["flattened"], all_reduce.of(BY_NAME["flattened"], "add", X), exact_sums),
    ("f32/variadic", ALL, all_reduce.of(ALL, "add", X, Shape(F32)), exact_sums),
    ("f32/dimension-1", ALL, movement.gathering(ALL, 1, X), bits),
    ("s32/dimension-0", SUBGROUPS, movement.gathering(SUBGROUPS, 0, Shape(S32, (2, 3))), bits),
    ("f32/rank-2", collective_permute.RING, collective_permute.of(collective_permute.RING, X), bits),
    ("bf16/rank-2", CHAIN, collective_permute.of(CHAIN, Shape(BF16, (2, 3))), bits),
)
# any collective in a computation of its own
WRAPPED: tuple[tuple[str, Groups, Collective, Values], ...] = (
    ("f32/add", ALL, all_reduce.of(ALL, "add", X), exact_sums),
    ("f32/dimension-0", ALL, movement.gathering(ALL, 0, X), bits),
    ("f32/add", SUBGROUPS, reduce_scatter.of(SUBGROUPS, "add", 0, Shape(F32, (2, 3))), exact_sums),
    ("f32/dimension-0", ALL, movement.exchange(ALL, 0, X), bits),
    ("f32/tuple", ALL, movement.tuple_exchange(ALL, X), bits),
    ("f32/rank-2", ALL, movement.broadcast(ALL, X), bits),
    ("f32/rank-2", CHAIN, collective_permute.of(CHAIN, X), bits),
)


def cases() -> Iterator[Case]:
    """All of this file."""
    for what, groups, collective, values in PAIRS:
        name = f"{collective.opcode}-start/{groups.name}/{what}"
        yield _case(name, groups, collective, _pair(collective), values)
    for what, groups, collective, values in WRAPPED:
        name = f"async-start/{collective.opcode}/{groups.name}/{what}"
        wrapped = collective.computations + _wrapped(collective)
        yield _case(name, groups, collective, _wrapping(collective), values, wrapped)
    yield from _in_flight()


def _case(
    name: str, groups: Groups, collective: Collective, lines: list[str], values: Values, computations: str | None = None
) -> Case:
    body = [*parameters(collective.operands), *lines]
    named = collective.computations if computations is None else computations
    text = program(name, groups.replicas, groups.partitions, body, named)
    return Case(name, text, groups.replicas, groups.partitions, collective.operands, values)


def started(collective: Collective) -> str:
    """The shape of the opcode's start: an all-reduce's is its result, others have the operands, too."""
    operands = one_or_tuple(collective.operands)
    shapes = {"all-reduce": collective.result, "collective-permute": f"({operands}, {collective.result}, u32[], u32[])"}
    return shapes.get(collective.opcode, f"({operands}, {collective.result})")


def _operands(collective: Collective) -> str:
    return ", ".join(f"x{k}" for k in range(len(collective.operands)))


def _pair(collective: Collective) -> list[str]:
    start = f"s = {started(collective)} {collective.opcode}-start({_operands(collective)}), {collective.attributes}"
    return [start, f"d = {collective.result} {collective.opcode}-done(s)"]


def _wrapped(collective: Collective) -> str:
    lines = [*parameters(collective.operands), collective.line([f"x{k}" for k in range(len(collective.operands))])]
    return computation("wrapped", lines)


def _wrapping(collective: Collective) -> list[str]:
    operands = ", ".join(map(str, collective.operands))
    start = f"s = (({operands}), {collective.result}, u32[]) async-start({_operands(collective)}), calls=wrapped"
    return [start, f"d = {collective.result} async-done(s)"]


# name, lines between the parameter x0 and the root: two collectives in flight, ended in either order
IN_FLIGHT = (
    ("first-ends-first", ("d = f32[4,3] all-reduce-done(s)", "e = f32[4,3] collective-permute-done(t)")),
    ("second-ends-first", ("e = f32[4,3] collective-permute-done(t)", "d = f32[4,3] all-reduce-done(s)")),
)


def _in_flight() -> Iterator[Case]:
    reduced, moved = all_reduce.of(ALL, "add", X), collective_permute.of(collective_permute.RING, X)
    for what, done in IN_FLIGHT:
        name = f"async-pairs/all/f32/{what}"
        lines = [
            *parameters((X,)),
            f"s = {reduced.result} all-reduce-start(x0), {reduced.attributes}",
            f"t = {started(moved)} collective-permute-start(x0), {moved.attributes}",
            "between = f32[4,3] negate(x0)",
            *done,
            "both = f32[4,3] add(d, e)",
            "r = f32[4,3] add(both, between)",
        ]
        yield Case(name, program(name, 4, 1, lines, reduced.computations), 4, 1, (X,), exact_sums)
