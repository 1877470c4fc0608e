"""Groups and pairs that don't fit the run: found by the verifier, with rule, instruction and place."""

from __future__ import annotations

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import VerificationError
from distxla.text.parser import parse_module

TEXT = """HloModule bad
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY main {{
  p = f32[8] parameter(0)
  t = s32[4] parameter(1)
  ROOT wrong = {}
}}
"""
REDUCE = "f32[8] all-reduce(p), to_apply=add, "
SCATTER = "f32[2] reduce-scatter(p), to_apply=add, dimensions={0}, "
GATHER = "f32[32] all-gather(p), dimensions={0}, "
EXCHANGE = "f32[8] all-to-all(p), dimensions={0}, "
BROADCAST = "f32[8] collective-broadcast(p), "
RAGGED = "f32[8] ragged-all-to-all(p, p, t, t, t, t), "
PERMUTE = "f32[8] collective-permute(p), "
FLAT = "channel_id=1, use_global_device_ids=true, "

# what is wrong: instruction, the rule that says so, replicas, partitions
CASES = {
    **{
        f"{what} in {instruction.split('(')[0].split()[1]}": (instruction + f"replica_groups={groups}", rule, 4, 1)
        for instruction in (REDUCE, SCATTER, GATHER, EXCHANGE, RAGGED, BROADCAST)
        for what, groups, rule in (
            ("an id twice in a group", "{{0,1,1,2}}", "C1"),
            ("overlapping groups", "{{0,1},{1,2}}", "C1"),
            ("a negative id", "{{0,1,-1,3}}", "C1"),
            ("an id that does not exist", "{{0,1,2,4}}", "C5"),
        )
    },
    **{
        f"a missing id in {instruction.split('(')[0].split()[1]}": (
            instruction + "replica_groups={{0,1,2,3}}",
            "C5",
            5,
            1,
        )
        for instruction in (REDUCE, SCATTER, GATHER, EXCHANGE, RAGGED)
    },
    **{
        f"groups of two sizes in {instruction.split('(')[0].split()[1]}": (
            instruction + "replica_groups={{0,1,2},{3}}",
            "C2",
            4,
            1,
        )
        for instruction in (SCATTER, GATHER, EXCHANGE, RAGGED, BROADCAST)
    },
    "an empty group": (REDUCE + "replica_groups={{0,1,2,3},{}}", "C2", 4, 1),
    "flattened ids without a channel": (REDUCE + "use_global_device_ids=true, replica_groups={{0,1}}", "C3", 2, 1),
    "flattened ids without groups": (REDUCE + FLAT + "replica_groups={}", "C4", 2, 1),
    "replica ids where flattened ones are meant": (REDUCE + FLAT + "replica_groups={{0,1}}", "C5", 2, 2),
    "flattened ids where replica ids are meant": (REDUCE + "channel_id=1, replica_groups={{0,1,2,3}}", "C5", 2, 2),
    "replica ids where partition ids are meant": (
        EXCHANGE + "channel_id=1, replica_groups={{0,1,2,3}}",
        "C5",
        4,
        2,
    ),
    "an iota that is too long": (GATHER + "replica_groups=[2,4]<=[8]", "C5", 4, 1),
    "a module for eight devices on four": (REDUCE + "replica_groups={{0,1,2,3,4,5,6,7}}", "C5", 4, 1),
    "a repeated source": (PERMUTE + "source_target_pairs={{0,1},{0,2}}", "C1", 4, 1),
    "a repeated target": (PERMUTE + "source_target_pairs={{0,2},{1,2}}", "C1", 4, 1),
    "a negative target": (PERMUTE + "source_target_pairs={{0,-1}}", "C1", 4, 1),
    "a source that does not exist": (PERMUTE + "source_target_pairs={{4,0}}", "C2", 4, 1),
    "a target that does not exist": (PERMUTE + "channel_id=1, source_target_pairs={{0,2}}", "C2", 4, 2),
    "an unknown order": (REDUCE + "replica_groups={}, reduction_order=random", "C11", 4, 1),
    "an unknown order of a reduce-scatter": (SCATTER + "replica_groups={}, reduction_order=none", "C11", 4, 1),
    "a result for another group size": (GATHER + "replica_groups={{0,1}}", "shape", 2, 1),
    "a result for another number of replicas": (GATHER + "replica_groups={}", "shape", 8, 1),
    "parts that don't divide": (EXCHANGE + "replica_groups={{0,1,2}}", "C9", 3, 1),
    "tables for another group size": (RAGGED + "replica_groups={{0,1,2}}", "C9", 3, 1),
}


@pytest.mark.parametrize("what", CASES)
def test_what_is_wrong_is_named_with_its_place(what: str) -> None:
    instruction, rule, replicas, partitions = CASES[what]
    module = parse_module(TEXT.format(instruction), "bad.hlo")
    with pytest.raises(VerificationError) as found:
        verify_module(module, replicas, partitions)
    opcode = instruction.split("(")[0].split()[1]
    assert found.value.message.startswith(f"{opcode}.{rule}: ")
    assert found.value.location is not None
    assert str(found.value.location).startswith("bad.hlo:10:")
