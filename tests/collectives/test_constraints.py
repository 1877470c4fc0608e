"""Each numbered constraint of the collectives, and what the groups mean in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from distxla.ir.counts import Counts
from distxla.ir.element_type import F32, S32, U32
from distxla.ir.op import RuleViolation
from distxla.ir.replica_groups import GroupMode, ReplicaGroups
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.support.registry import op_class

A, B, SCALAR = Shape(F32, (8, 6)), Shape(F32, (2,)), Shape(F32, ())
REDUCING = {"to_apply": "combine"}


def groups(*rows: tuple[int, ...]) -> ReplicaGroups:
    return ReplicaGroups(rows)


def called(name: str) -> ProgramShape:
    return {
        "combine": ProgramShape((SCALAR, SCALAR), SCALAR),
        "arrays": ProgramShape((A, A), A),
        "unary": ProgramShape((SCALAR,), SCALAR),
    }[name]


def infer(opcode: str, attributes: dict[str, Any], operands: tuple[Shape, ...]) -> Shape | None:
    return op_class(opcode)(**attributes).infer_shape(operands, called)


VIOLATIONS = [
    ("all-reduce", "C1", {**REDUCING, "replica_groups": groups((0, 1), (1, 2))}, (A,)),
    ("all-gather", "C1", {"dimensions": (0,), "replica_groups": groups((0, -1))}, (A,)),
    ("all-gather", "C2", {"dimensions": (0,), "replica_groups": groups((0, 1), (2,))}, (A,)),
    ("all-reduce", "C2", {**REDUCING, "replica_groups": groups((0, 1), ())}, (A,)),
    ("all-reduce", "C3", {**REDUCING, "use_global_device_ids": True, "replica_groups": groups((0, 1))}, (A,)),
    ("reduce-scatter", "C4", {**REDUCING, "dimensions": (0,), "channel_id": 1, "use_global_device_ids": True}, (A,)),
    ("all-reduce", "C6", REDUCING, ()),
    ("all-reduce", "C7", REDUCING, (Shape.token(),)),
    ("all-reduce", "C8", {"to_apply": "arrays"}, (A,)),
    ("all-reduce", "C8", {"to_apply": "unary"}, (A,)),
    ("reduce-scatter", "C8", {"to_apply": "unary", "dimensions": (0,)}, (Shape(S32, (8,)),)),
    ("all-gather", "C8", {"dimensions": (2,), "replica_groups": groups((0, 1))}, (A,)),
    ("all-gather", "C8", {"dimensions": (0, 1), "replica_groups": groups((0, 1))}, (A,)),
    ("all-gather", "C8", {"dimensions": (0,), "replica_groups": groups((0, 1))}, (Shape(F32), Shape(F32))),
    ("all-gather", "C8", {"dimensions": (2,), "replica_groups": groups((0, 1))}, (Shape(F32), A)),
    ("reduce-scatter", "C9", {**REDUCING, "dimensions": (1,), "replica_groups": groups((0, 1))}, (A, B)),
    ("reduce-scatter", "C10", {**REDUCING, "dimensions": (1,), "replica_groups": groups((0, 1, 2, 3))}, (A,)),
    ("all-to-all", "C6", {"replica_groups": groups((0, 1, 2))}, (A, A)),
    ("all-to-all", "C6", {"dimensions": (0,), "replica_groups": groups((0, 1))}, (A, A)),
    ("all-to-all", "C8", {"dimensions": (2,), "replica_groups": groups((0, 1))}, (A,)),
    ("all-to-all", "C9", {"dimensions": (1,), "replica_groups": groups((0, 1, 2, 3))}, (A,)),
    ("all-to-all", "C10", {"replica_groups": groups((0, 1))}, (A, B)),
    ("ragged-all-to-all", "C6", {"replica_groups": groups((0, 1))}, (A, A)),
    ("ragged-all-to-all", "C8", {"replica_groups": groups((0, 1))}, (A, B, B, B, B, B)),
    ("ragged-all-to-all", "C9", {"replica_groups": groups((0, 1))}, (A, A, B, B, B, B)),
    ("collective-broadcast", "C2", {"replica_groups": groups((0,), (1, 2))}, (A,)),
    ("collective-broadcast", "C8", {"replica_groups": groups((0, 1)), "has_dynamic_root": True}, (Shape(S32, (1,)),)),
    ("collective-broadcast", "C8", {"replica_groups": groups((0, 1)), "has_dynamic_root": True}, (A, A)),
    ("collective-permute", "C1", {"source_target_pairs": ((0, 1), (0, 2))}, (A,)),
    ("collective-permute", "C1", {"source_target_pairs": ((0, 1), (2, 1))}, (A,)),
    ("collective-permute", "C3", {"source_target_pairs": (), "slice_sizes": ((1, 1),)}, (A,)),
    ("collective-permute", "C4", {"source_target_pairs": ()}, (Shape.token(),)),
    ("all-gather-done", "C1", {}, (A,)),
    ("collective-permute-done", "C1", {}, (A,)),
]


@pytest.mark.parametrize(("opcode", "rule", "attributes", "operands"), VIOLATIONS)
def test_violation_names_its_rule(
    opcode: str, rule: str, attributes: dict[str, Any], operands: tuple[Shape, ...]
) -> None:
    with pytest.raises(RuleViolation) as found:
        infer(opcode, attributes, operands)
    assert found.value.message.startswith(f"{opcode}.{rule}: ")


SHAPES = [
    ("all-reduce", {**REDUCING, "replica_groups": groups((0, 1))}, (A,), A),
    ("all-reduce", {**REDUCING, "replica_groups": groups((0, 1))}, (A, B), Shape.tuple((A, B))),
    ("all-gather", {"dimensions": (1,), "replica_groups": groups((0, 1))}, (A,), Shape(F32, (8, 12))),
    (
        "all-gather",
        {"dimensions": (1,), "replica_groups": groups((0, 1))},
        (Shape(F32), A),
        Shape.tuple((Shape(F32), Shape(F32, (8, 12)))),
    ),
    ("reduce-scatter", {**REDUCING, "dimensions": (0,), "replica_groups": groups((0, 1))}, (A,), Shape(F32, (4, 6))),
    ("all-to-all", {"dimensions": (0,), "replica_groups": groups((0, 1))}, (A,), A),
    ("all-to-all", {"replica_groups": groups((0, 1))}, (B, B), Shape.tuple((B, B))),
    ("collective-broadcast", {"replica_groups": groups((0, 1))}, (A,), A),
    (
        "collective-broadcast",
        {"replica_groups": groups((0, 1)), "has_dynamic_root": True},
        (A, B, Shape(S32, (2,))),
        Shape.tuple((A, B)),
    ),
    ("collective-permute", {"source_target_pairs": ((0, 1),)}, (A, B), Shape.tuple((A, B))),
    ("all-reduce-start", {**REDUCING, "replica_groups": groups((0, 1))}, (A,), A),
    ("all-reduce-done", {}, (A,), A),
    (
        "all-gather-start",
        {"dimensions": (0,), "replica_groups": groups((0, 1))},
        (B,),
        Shape.tuple((B, Shape(F32, (4,)))),
    ),
    ("all-gather-done", {}, (Shape.tuple((B, A)),), A),
    ("collective-permute-start", {"source_target_pairs": ((0, 1),)}, (B,), Shape.tuple((B, B))),
    ("collective-permute-done", {}, (Shape.tuple((B, A, Shape(U32), Shape(U32))),), A),
]


@pytest.mark.parametrize(("opcode", "attributes", "operands", "result"), SHAPES)
def test_shape(opcode: str, attributes: dict[str, Any], operands: tuple[Shape, ...], result: Shape) -> None:
    op = op_class(opcode)(**attributes)
    assert op.infer_shape(operands, called) == result
    op.verify(result, operands, called)
    with pytest.raises(RuleViolation):
        op.verify(Shape(S32, (3,)), operands, called)


def test_without_groups_the_stated_result_must_fit_some_size() -> None:
    op = op_class("all-gather")(dimensions=(0,))
    assert op.infer_shape((B,), called) is None
    op.verify(Shape(F32, (6,)), (B,), called)
    with pytest.raises(RuleViolation, match="no group size gives"):
        op.verify(Shape(F32, (7,)), (B,), called)


def test_start_of_a_permute_may_carry_contexts() -> None:
    op = op_class("collective-permute-start")(source_target_pairs=((0, 1),))
    op.verify(Shape.tuple((B, B, Shape(U32), Shape(U32))), (B,), called)
    with pytest.raises(RuleViolation, match="C5"):
        op.verify(Shape.tuple((B, B, Shape(U32))), (B,), called)


FOUR = groups((1, 0))
MODES = [
    ("all-reduce", {**REDUCING, "replica_groups": FOUR}, GroupMode.CROSS_REPLICA, ((2, 0), (3, 1))),
    ("all-reduce", REDUCING, GroupMode.CROSS_REPLICA, ((0, 2), (1, 3))),
    (
        "all-reduce",
        {**REDUCING, "channel_id": 1, "replica_groups": FOUR},
        GroupMode.CROSS_REPLICA_AND_PARTITION,
        ((2, 3, 0, 1),),
    ),
    (
        "all-reduce",
        {**REDUCING, "channel_id": 1, "use_global_device_ids": True, "replica_groups": groups((3, 0), (2, 1))},
        GroupMode.FLATTENED_ID,
        ((3, 0), (2, 1)),
    ),
    (
        "all-to-all",
        {"channel_id": 1, "dimensions": (0,), "replica_groups": FOUR},
        GroupMode.CROSS_PARTITION,
        ((1, 0), (3, 2)),
    ),
    (
        "collective-permute",
        {"channel_id": 1, "source_target_pairs": ((1, 0),)},
        GroupMode.CROSS_PARTITION,
        ((0, 1), (2, 3)),
    ),
    ("collective-permute", {"source_target_pairs": ((1, 1),)}, GroupMode.CROSS_REPLICA, ((0,), (2,), (1,), (3,))),
]


@pytest.mark.parametrize(("opcode", "attributes", "mode", "expected"), MODES)
def test_device_groups_of_two_replicas_and_two_partitions(
    opcode: str, attributes: dict[str, Any], mode: GroupMode, expected: tuple[tuple[int, ...], ...]
) -> None:
    op = op_class(opcode)(**attributes)
    assert op.group_mode is mode
    assert op.device_groups(Counts(2, 2)) == expected


def test_groups_must_hold_every_id_of_the_run() -> None:
    op = op_class("all-reduce")(**REDUCING, replica_groups=groups((0, 1)))
    with pytest.raises(RuleViolation, match=r"all-reduce\.C5: .*each id of 0\.\.3 once"):
        op.device_groups(Counts(4, 1))
    with pytest.raises(RuleViolation, match=r"collective-permute\.C2: "):
        op_class("collective-permute")(source_target_pairs=((0, 4),)).device_groups(Counts(4, 1))


def test_pairs_of_devices() -> None:
    op = op_class("collective-permute")(channel_id=3, source_target_pairs=((0, 1),))
    assert op.device_pairs(Counts(2, 2)) == ((0, 1), (2, 3))
    assert op_class("collective-permute")(source_target_pairs=((0, 1),)).device_pairs(Counts(2, 2)) == ((0, 2), (1, 3))
