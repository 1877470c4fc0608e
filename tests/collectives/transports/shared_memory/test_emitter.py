"""Native collectives over shared memory against NumPy formulas and the ops' own answers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.collectives.transports.shared_memory.group_site import GroupEmitter
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.ir.element_type import BF16, C64, DATA_TYPES, F32, F64, PRED, S32, U8, ElementType
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.shape import Shape
from distxla.ops.all_gather import AllGather
from distxla.ops.all_reduce import AllReduce
from distxla.ops.all_to_all import AllToAll
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.reduce_scatter import ReduceScatter
from tests.collectives.devices import Code, World, layout, module_of
from tests.collectives.transports.shared_memory.emitter_cases import (
    REDUCERS,
    Array,
    Case,
    case_of,
    formula,
    permuted,
    values,
)
from tests.samples import TYPES, examples


def reducers_of(kind: ElementType) -> list[str]:
    if kind is PRED:
        return ["and", "xor"]
    if kind.is_integer:
        return ["add", "subtract", "maximum", "and"] if kind.bits >= 8 else ["add", "maximum"]
    return ["add", "subtract"] if kind.is_complex else ["add", "subtract", "maximum", "minimum"]


@dataclass(frozen=True)
class Stub:
    """Stands for `Evaluation` where an op asks for nothing but its reduction, its place and its operands' shapes."""

    reducer: str = "add"
    replica: int = 0
    partition: int = 0
    operand_shapes: tuple[Shape, ...] = ()

    def map(self, computation: str, a: Array, b: Array) -> tuple[Array]:
        return (REDUCERS[self.reducer](a, b).astype(a.dtype),)


def same_bits(a: Array, b: Array) -> bool:
    """Equal bits; any NaN equals any NaN."""
    raw_a, raw_b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    if np.array_equal(raw_a, raw_b):
        return True
    if a.dtype.kind in "biu":
        return False
    nan = np.isnan(a) & np.isnan(b)
    width = a.dtype.itemsize
    differs = (raw_a.reshape(-1, width) != raw_b.reshape(-1, width)).any(axis=1).reshape(a.shape)
    return bool((~differs | nan).all())


def brute_groups(op: Any, replicas: int, partitions: int) -> list[list[int]]:
    """Groups as the table of modes says, written independently of the op."""
    rows = [list(g) for g in op.replica_groups.groups]
    if op.channel_id is None:
        rows = rows or [list(range(replicas))]
        return [[r * partitions + p for r in row] for row in rows for p in range(partitions)]
    if op.global_ids:
        return rows
    if isinstance(op, (AllReduce, AllGather, ReduceScatter)):
        rows = rows or [list(range(replicas))]
        return [[r * partitions + p for r in row for p in range(partitions)] for row in rows]
    rows = rows or [list(range(partitions))]
    return [[r * partitions + p for p in row] for row in rows for r in range(replicas)]


def check(cases: Sequence[Case], replicas: int, partitions: int, rounds: int = 2, cores: int | None = None) -> None:
    """Run all cases in order on all devices, `rounds` times each, and compare every leaf's bits with the formulas."""
    devices = range(replicas * partitions)
    code = Code([c.module for c in cases], replicas, partitions)
    places, end = [], 64
    for case in cases:
        sent, end = layout(case.operands, end)
        received, end = layout(case.results, end)
        places.append((sent, received))
    world = World(code, replicas, partitions, end, cores)
    inputs: list[list[list[Array]]] = []
    for number, (case, (sent, _)) in enumerate(zip(cases, places, strict=True)):
        arrays = [[values(s, 1000 * number + 10 * d + i) for i, s in enumerate(case.operands)] for d in devices]
        for d in devices:
            for offset, shape, array in zip(sent, case.operands, arrays[d], strict=True):
                world.array(d, offset, shape)[...] = array
        inputs.append(arrays)

    def program(device: int) -> int:
        for _ in range(rounds):
            for site, (sent, received) in enumerate(places):
                status = world.call(device, site, sent, received, 2)
                if status:
                    return status
        return 0

    assert world.run([functools.partial(program, d) for d in devices]) == [0] * len(devices)
    with np.errstate(all="ignore"):
        for case, arrays, (_, received) in zip(cases, inputs, places, strict=True):
            _compare(case, arrays, received, world, replicas, partitions)


def _compare(
    case: Case, arrays: list[list[Array]], received: list[int], world: World, replicas: int, partitions: int
) -> None:
    if isinstance(case.op, CollectivePermute):
        expected = permuted(case, replicas, partitions, arrays)
        groups = [list(g) for g in case.op.device_groups(Counts(replicas, partitions))]
    else:
        groups = brute_groups(case.op, replicas, partitions)
        assert sorted(map(tuple, groups)) == sorted(case.op.device_groups(Counts(replicas, partitions)))
        expected = [[] for _ in arrays]
        for group in groups:
            for member, mine in zip(group, formula(case, group, [arrays[d] for d in group]), strict=True):
                expected[member] = mine
    for group in groups:
        stub = Stub(case.reducer, *divmod(group[0], partitions), case.operands)
        answers = case.op.evaluate_group(tuple(group), [tuple(arrays[d]) for d in group], stub)
        for member, answer in zip(group, answers, strict=True):
            leaves = answer if isinstance(answer, tuple) else (answer,)
            for i, (shape, offset) in enumerate(zip(case.results, received, strict=True)):
                found = world.array(member, offset, shape)
                assert same_bits(expected[member][i], leaves[i]), (case, member, i)
                assert same_bits(expected[member][i], found), (case, member, i, expected[member][i], found)


# --- one element type at a time, everything else plain


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("kind", [t for t in DATA_TYPES if t.name in TYPES or t.bits > 8], ids=str)
def test_every_element_type(kind: ElementType) -> None:
    shape = Shape(kind, (4, 7))
    cases = [case_of(AllReduce(to_apply="combine"), [shape], 4, reducer) for reducer in reducers_of(kind)]
    cases += [
        case_of(ReduceScatter(dimensions=(0,), to_apply="combine"), [shape], 4, reducers_of(kind)[0]),
        case_of(AllGather(dimensions=(1,)), [shape], 4),
        case_of(AllToAll(dimensions=(0,)), [shape], 4),
        Case(CollectivePermute(source_target_pairs=((0, 1), (1, 3))), (shape,), shape),
    ]
    check(cases, 4, 1, rounds=1)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("dims", [(), (0,), (1,), (1009,), (0, 8), (200_003,)], ids=str)
def test_sizes(dims: tuple[int, ...]) -> None:
    shape = Shape(F32, dims)
    cases = [
        case_of(AllReduce(to_apply="combine"), [shape], 5),
        case_of(CollectiveBroadcast(), [shape], 5),
        case_of(AllToAll(), [shape] * 5, 5),
        Case(CollectivePermute(source_target_pairs=((0, 1), (1, 2), (2, 0), (3, 3))), (shape,), shape),
    ]
    if dims:
        cases.append(case_of(AllGather(dimensions=(0,)), [shape], 5))
    check(cases, 5, 1)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("devices", [1, 2, 9, 16, 19, 27])
def test_group_sizes_beyond_one_pass_of_the_reduction(devices: int) -> None:
    shape = Shape(F32, (devices * 3,))
    cases = [
        case_of(AllReduce(to_apply="combine"), [shape], devices, "subtract"),
        case_of(ReduceScatter(dimensions=(0,), to_apply="combine"), [shape], devices, "subtract"),
    ]
    check(cases, devices, 1)


def test_all_reduce_may_have_groups_of_different_sizes() -> None:
    groups = ReplicaGroups(((4, 0), (1,), (5, 2, 3)))
    check([case_of(AllReduce(to_apply="combine", replica_groups=groups), [Shape(F64, (33,))], 2, "subtract")], 6, 1)


def test_inner_dimensions_of_large_arrays() -> None:
    shape = Shape(F32, (40, 8, 96))
    cases = [
        case_of(AllGather(dimensions=(1,)), [shape], 8),
        case_of(AllGather(dimensions=(2,)), [shape], 8),
        case_of(ReduceScatter(dimensions=(1,), to_apply="combine"), [shape], 8, "subtract"),
        case_of(ReduceScatter(dimensions=(2,), to_apply="combine"), [shape], 8),
        case_of(AllToAll(dimensions=(1,)), [shape], 8),
        case_of(AllToAll(dimensions=(2,)), [shape], 8),
    ]
    check(cases, 8, 1)


def test_results_that_bypass_the_caches() -> None:
    shape = Shape(F32, (3_000_017,))
    check([case_of(AllReduce(to_apply="combine"), [shape], 2), case_of(AllGather(dimensions=(0,)), [shape], 2)], 2, 1)


def test_more_operands_than_a_slot_holds() -> None:
    operands = [Shape(S32, (i % 5,)) for i in range(600)]
    cases = [
        case_of(AllReduce(to_apply="combine"), operands, 3, "subtract"),
        Case(CollectivePermute(source_target_pairs=((0, 1), (1, 2))), tuple(operands), Shape.tuple(tuple(operands))),
    ]
    check(cases, 3, 1)


def test_an_all_to_all_of_more_operands_than_a_slot_holds_is_refused() -> None:
    """Its one round can't be divided; 254 operands and as many results fit."""
    for count in (254, 255):
        operands = (Shape(S32, (2,)),) * count
        module = module_of(AllToAll(), operands, Shape.tuple(operands))
        root, emitter = module.entry_computation.root_instruction, GroupEmitter()
        if count == 254:
            assert emitter.communicator(root, operands, Counts(count, 1)).groups == (tuple(range(count)),)
        else:
            with pytest.raises(UnsupportedOpError, match="255 operands: this version exchanges at most 254"):
                emitter.communicator(root, operands, Counts(count, 1))


def test_large_permutes_in_several_operands() -> None:
    operands = [Shape(F32, (30_001,)), Shape(U8, (5,)), Shape(C64, (20_000,))]
    pairs = ((0, 1), (1, 2), (2, 3), (3, 0), (4, 4))
    check([Case(CollectivePermute(source_target_pairs=pairs), tuple(operands), Shape.tuple(operands))], 6, 1, rounds=9)


def test_more_cores_than_devices() -> None:
    shape = Shape(F32, (100_000,))
    cases = [case_of(AllReduce(to_apply="combine"), [shape], 2), case_of(AllReduce(to_apply="combine"), [shape], 2)]
    check(cases, 2, 1, rounds=5, cores=64)


def test_all_reduce_in_place() -> None:
    shape = Shape(F32, (300_000,))
    case = case_of(AllReduce(to_apply="combine"), [shape], 4)
    world = World(Code([case.module], 4, 1), 4, 1, 64 + shape.byte_size)
    arrays = [values(shape, d) for d in range(4)]
    for d in range(4):
        world.array(d, 64, shape)[...] = arrays[d]
    assert world.run([functools.partial(world.call, d, 0, [64], [64]) for d in range(4)]) == [0] * 4
    expected = functools.reduce(np.add, arrays)
    assert all(same_bits(world.array(d, 64, shape), expected) for d in range(4))


def test_negative_zeros_stay_negative() -> None:
    shape = Shape(F32, (3,))
    case = case_of(AllReduce(to_apply="combine"), [shape], 4)
    world = World(Code([case.module], 4, 1), 4, 1, 4096)
    for d in range(4):
        world.array(d, 64, shape)[...] = -0.0
    assert world.run([functools.partial(world.call, d, 0, [64], [128]) for d in range(4)]) == [0] * 4
    assert np.signbit(world.array(0, 128, shape)).all()


# --- groups, orders, modes, types, sizes, operand counts by Hypothesis


@st.composite
def groups_of(draw: st.DrawFn, ids: int) -> ReplicaGroups:
    """A partition of range(ids) into groups of one size in any order, or nothing for everybody."""
    if draw(st.booleans()) and ids > 1:
        size = draw(st.sampled_from([s for s in range(1, ids + 1) if ids % s == 0]))
        order = draw(st.permutations(range(ids)))
        return ReplicaGroups(tuple(tuple(order[i : i + size]) for i in range(0, ids, size)))
    return ReplicaGroups()


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, int, list[Case]]:
    replicas, partitions = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2), (3, 2), (2, 4), (8, 1), (1, 8)]))
    return replicas, partitions, [draw(instructions(replicas, partitions)) for _ in range(draw(st.integers(1, 5)))]


@st.composite
def instructions(draw: st.DrawFn, replicas: int, partitions: int) -> Case:
    kind = draw(st.sampled_from([F32, BF16, S32, U8, PRED, C64]))
    classes = [AllReduce, AllGather, ReduceScatter, AllToAll, CollectiveBroadcast, CollectivePermute]
    op_class = draw(st.sampled_from(classes))
    channel = draw(st.sampled_from([None, 7]))
    if op_class is CollectivePermute:
        count = replicas if channel is None else partitions
        targets = draw(st.permutations(range(count)))
        kept = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        pairs = tuple((s, t) for s, t, keep in zip(range(count), targets, kept, strict=True) if keep)
        shapes = [
            Shape(kind, tuple(d)) for d in draw(st.lists(st.lists(dim_sizes, max_size=3), min_size=1, max_size=3))
        ]
        result = shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
        return Case(CollectivePermute(channel_id=channel, source_target_pairs=pairs), tuple(shapes), result)
    flat = channel is not None and op_class in (AllReduce, AllGather, ReduceScatter) and draw(st.booleans())
    cross_partition = channel is not None and op_class in (AllToAll, CollectiveBroadcast)
    ids = replicas * partitions if flat else partitions if cross_partition else replicas
    groups = draw(groups_of(ids))
    if flat and groups.is_empty:
        groups = ReplicaGroups((tuple(range(ids)),))
    attributes: dict[str, Any] = {"channel_id": channel, "replica_groups": groups}
    if flat:
        attributes["use_global_device_ids"] = True
    if op_class in (AllReduce, ReduceScatter):
        attributes["to_apply"] = "combine"
    dims = draw(st.lists(dim_sizes, min_size=1, max_size=3))
    dimension = draw(st.integers(0, len(dims) - 1))
    if op_class in (AllGather, ReduceScatter):
        attributes["dimensions"] = (dimension,)
    tuple_form = op_class is AllToAll and draw(st.booleans())
    if op_class is AllToAll and not tuple_form:
        attributes["dimensions"] = (dimension,)
    op = op_class(**attributes)
    size = len(op.device_groups(Counts(replicas, partitions))[0])
    if op_class is ReduceScatter or (op_class is AllToAll and not tuple_form):
        dims[dimension] *= size
    shape = Shape(kind, tuple(dims))
    count = size if tuple_form else 1 if op_class is AllToAll else draw(st.integers(1, 3))
    return case_of(op, [shape] * count, size, draw(st.sampled_from(reducers_of(kind))))


dim_sizes = st.sampled_from([0, 1, 2, 3, 5, 17, 61])
quick = settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(programs())
def test_random_programs(program: tuple[int, int, list[Case]]) -> None:
    replicas, partitions, cases = program
    check(cases, replicas, partitions)


@pytest.mark.exhaustive
@settings(quick, max_examples=30)
@given(programs())
def test_many_random_programs(program: tuple[int, int, list[Case]]) -> None:
    replicas, partitions, cases = program
    check(cases, replicas, partitions)
