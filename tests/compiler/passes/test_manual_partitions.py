"""Global modules become per-device ones, or are refused with the instruction that needs a partitioner."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.obstacles import obstacles
from distxla.compiler.passes.manual_partitions import per_device
from distxla.compiler.passes.placements import declared_values
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.shards import Shards
from distxla.ops.custom_calls.annotation import ANNOTATIONS
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.global_modules import ARGUMENTS, GSPMD, PARTITIONS, SHARDY, expected
from tests.programs import PROGRAMS, ShardedProgram

each_form = pytest.mark.parametrize("text", [SHARDY, GSPMD], ids=["shardy", "gspmd"])


@each_form
def test_both_forms_become_the_same_per_device_program(text: str) -> None:
    module = parse_module(text)
    verify_module(module)
    found = per_device(module)
    assert found is not None
    verify_module(found.module)
    assert obstacles(found.module) == []
    assert found.module.num_partitions == PARTITIONS
    assert [str(placed.shard_shape) for placed in found.parameters] == ["f32[2,2]", "f32[2]", "f32[]"]
    assert [str(p.shape) for p in found.module.entry_computation.parameters] == ["f32[2,2]", "f32[2]", "f32[]"]
    assert [str(placed.shape) for placed in found.results] == ["f32[4,8]", "f32[8]", "f32[]"]
    args = [[p.shards.split(a, d) for p, a in zip(found.parameters, ARGUMENTS)] for d in range(PARTITIONS)]
    outs = run_reference(found.module, args, Counts(1, PARTITIONS))
    for k, (placed, want) in enumerate(zip(found.results, expected(), strict=True)):
        assert np.array_equal(placed.shards.join([row[k] for row in outs]), want)


@each_form
def test_values_that_leave_a_region_state_their_shards(text: str) -> None:
    """All but those that are results with the same shards: there, `c2` is used by `c4`."""
    found = per_device(parse_module(text))
    assert found is not None
    stated = declared_values(found.module, PARTITIONS)
    results = [placed.shards for placed in found.results]
    assert sorted(shards.text for shards in stated.values()) == [
        "{devices=[4,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",
        "{replicated}",
    ]
    assert list(declared_values(found.module, PARTITIONS, results).values()) == [Shards.whole(0, PARTITIONS)]


def test_declared_sharding_that_cannot_be_read_is_refused_with_its_place() -> None:
    attribute = 'frontend_attributes={distxla.declared_sharding="{devices=[3]<=[3]}"}'
    module = parse_module(f"HloModule m\nENTRY main {{\n  ROOT x = f32[6] parameter(0), {attribute}\n}}\n")
    with pytest.raises(VerificationError, match=r"x: distxla\.declared_sharding: .*2 partitions") as error:
        declared_values(module, 2)
    assert str(error.value.location) == "<string>:3:33"


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_whole_programs_become_what_xla_partitions_them_into(program: ShardedProgram) -> None:
    found = per_device(parse_module(program.text("global")))
    assert found is not None
    verify_module(found.module)
    mine, theirs = (m.entry_computation for m in (found.module, parse_module(program.text("partitioned"))))
    assert [p.shape.without_layout() for p in mine.parameters] == [p.shape.without_layout() for p in theirs.parameters]
    assert mine.root_instruction.shape.compatible(theirs.root_instruction.shape)
    program.assert_results(run_reference(found.module, program.arguments, Counts(1, program.devices)))


def test_between_regions_arrays_may_be_computed_element_by_element() -> None:
    """The update of a training step, say: half of the sharded result, plus an iota that everybody has whole."""
    old = "  one = f32[] constant(1)\n"
    new = """  half = f32[] constant(0.5)
  halves = f32[8] broadcast(half), dimensions={}
  scaled = f32[8] multiply(b3, halves)
  steps = f32[8] iota(), iota_dimension=0
  b4 = f32[8] add(scaled, steps)
  one = f32[] constant(1)
"""
    for text in (SHARDY, GSPMD):
        changed = text.replace(old, new, 1).replace("b3, c4)", "b4, c4)", 1)
        found = per_device(parse_module(changed))
        assert found is not None
        verify_module(found.module)
        args = [[p.shards.split(a, d) for p, a in zip(found.parameters, ARGUMENTS)] for d in range(PARTITIONS)]
        outs = run_reference(found.module, args, Counts(1, PARTITIONS))
        joined = found.results[1].shards.join([row[1] for row in outs])
        assert np.array_equal(joined, 1.5 * np.arange(8, dtype=np.float32))


@pytest.mark.parametrize("target", ANNOTATIONS)
def test_what_annotates_a_sharded_array_only_leaves_it_as_it_is(target: str) -> None:
    old = "  one = f32[] constant(1)\n"
    new = f'  b4 = f32[8] custom-call(b3), custom_call_target="{target}"\n{old}'
    for text in (SHARDY, GSPMD):
        found = per_device(parse_module(text.replace(old, new, 1).replace("b3, c4)", "b4, c4)", 1)))
        assert found is not None
        verify_module(found.module)
        assert [str(placed.shard_shape) for placed in found.results] == ["f32[2,2]", "f32[2]", "f32[]"]


def test_a_parameter_is_cut_as_its_region_wants_it_whatever_memory_it_comes_from() -> None:
    old = "  b = f32[8] parameter(1)\n"
    new = '  whole = f32[8] parameter(1)\n  b = f32[8] custom-call(whole), custom_call_target="MoveToDevice"\n'
    found = per_device(parse_module(SHARDY.replace(old, new, 1)))
    assert found is not None
    assert [str(placed.shard_shape) for placed in found.parameters] == ["f32[2,2]", "f32[2]", "f32[]"]


def test_an_array_that_everybody_has_is_cut_where_it_is_needed() -> None:
    text = SHARDY.replace("b = f32[8] parameter(1)\n", "b = f32[8] parameter(1), sharding={replicated}\n", 1)
    found = per_device(parse_module(text))
    assert found is not None
    verify_module(found.module)
    assert [str(placed.shard_shape) for placed in found.parameters] == ["f32[2,2]", "f32[8]", "f32[]"]
    args = [[p.shards.split(a, d) for p, a in zip(found.parameters, ARGUMENTS)] for d in range(PARTITIONS)]
    outs = run_reference(found.module, args, Counts(1, PARTITIONS))
    assert np.array_equal(found.results[1].shards.join([row[1] for row in outs]), expected()[1])


@pytest.mark.parametrize("form", ["partitioned", "optimized"])
def test_per_device_modules_are_left_alone(form: str) -> None:
    assert per_device(parse_module(PROGRAMS[0].text(form))) is None


def test_a_manual_region_inside_of_a_call_is_found() -> None:
    text = GSPMD.replace("ENTRY main {", "inner {").replace("}\n", "}\n", 1) + (
        "ENTRY main {\n  a = f32[4,8] parameter(0)\n  b = f32[8] parameter(1)\n  c = f32[] parameter(2)\n"
        "  ROOT r = (f32[4,8], f32[8], f32[]) call(a, b, c), to_apply=inner\n}\n"
    )
    found = per_device(parse_module(text))
    assert found is not None
    # what the inner computation said of its parameters is gone, how it uses them is not
    assert [str(placed.shard_shape) for placed in found.parameters] == ["f32[2,2]", "f32[2]", "f32[]"]


@pytest.mark.parametrize(
    ("old", "new", "message", "at"),
    [
        (
            "b = f32[8] parameter(1)\n",
            "b = f32[8] parameter(1), sharding={devices=[8]<=[8]}\n",
            "in (custom-call) in a global module: its operand would have to be resharded",
            "in = ",
        ),
        (
            r'manual_axes{\"y\", \"x\"}>"}' + "\n  a1",
            r'manual_axes{\"y\"}>"}' + "\n  a1",
            "in (custom-call) in a global module: only the mesh axes y are manual",
            "in = ",
        ),
        (
            r'xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\"y\"}',
            r'xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\"z\"}',
            "in (custom-call) in a global module: the mesh has no axis 'z'",
            "in_shardings",
        ),
        (
            "ROOT r = (f32[4,8], f32[8], f32[]) tuple(same, b3, c4)",
            "rev = f32[8] reverse(b3), dimensions={0}\n  ROOT r = (f32[4,8], f32[8], f32[]) tuple(same, rev, c4)",
            "rev (reverse) in a global module: it computes with sharded arrays outside of a manual region",
            "rev = ",
        ),
        (
            "ROOT r = (f32[4,8], f32[8], f32[]) tuple(same, b3, c4)",
            "ROOT r = (f32[4,8], f32[8], f32[]) tuple(same, b3, c4), "
            "sharding={{replicated}, {devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}, {replicated}}",
            "r (tuple) in a global module: the result would have to be resharded",
            "ROOT r",
        ),
        (
            "c = f32[] parameter(2), sharding={replicated}",
            "c = f32[] parameter(2), sharding={maximal device=3}",
            "c (parameter) in a global module: the sharding {maximal device=3} cannot be executed",
            "c = f32[] parameter(2)",
        ),
        (
            "c = f32[] parameter(2), sharding={replicated}",
            "c = f32[] parameter(2), sharding={devices=[8]<=[8] last_tile_dims={manual}}",
            "the sharding {devices=[8]<=[8] last_tile_dims={manual}} cannot be executed",
            "c = f32[] parameter(2)",
        ),
        (
            "  c4 = f32[] add(c3, one)",
            "  c4 = f32[] all-reduce(c3), replica_groups={}, to_apply=add",
            "r (tuple) in a global module: the result leaves its manual region without becoming global",
            "ROOT r",
        ),
    ],
)
def test_what_needs_a_partitioner_is_refused_at_its_instruction(old: str, new: str, message: str, at: str) -> None:
    assert old in SHARDY
    text = SHARDY.replace(old, new, 1)
    with pytest.raises(UnsupportedOpError) as caught:
        per_device(parse_module(text, "global.hlo"))
    assert message in caught.value.message
    assert caught.value.location is not None
    assert at in caught.value.location.text


def test_uneven_shardings_are_refused() -> None:
    text = GSPMD.replace("f32[8]", "f32[10]")
    with pytest.raises(UnsupportedOpError, match=r"f32\[10\] cannot be cut evenly into 4 parts"):
        per_device(parse_module(text))


def test_a_manual_region_in_a_loop_is_an_obstacle() -> None:
    text = """
c { p = f32[4] parameter(0)
  ROOT no = pred[] constant(false) }
b { p = f32[4] parameter(0)
  s = f32[2] custom-call(p), custom_call_target="SPMDFullToShardShape", sharding={manual}
  ROOT f = f32[4] custom-call(s), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]} }
ENTRY e { p = f32[4] parameter(0)
  ROOT w = f32[4] while(p), condition=c, body=b }
"""
    module = parse_module(text)
    assert per_device(module) is None
    assert [i.name for i, why in obstacles(module) if "inside of a loop, a branch" in why] == ["s", "f"]


def test_shards_come_apart_and_together() -> None:
    shards = Shards((2, 1), ((1, 0), (0, 0), (1, 0), (0, 0)))
    array = np.arange(8).reshape(4, 2)
    parts = [shards.split(array, partition) for partition in range(4)]
    assert np.array_equal(parts[0], array[2:])
    assert np.array_equal(parts[1], array[:2])
    assert np.array_equal(shards.join(parts), array)
    assert Shards.whole(2, 4).is_whole


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("b0 = f32[8] custom-call(b)", "b0 = f32[12] custom-call(b)", "its operand is f32[8], its result f32[12]"),
        ("c1 = f32[] custom-call(c)", "c1 = f32[] custom-call()", "it takes one operand, has 0"),
        (
            'b0 = f32[8] custom-call(b), custom_call_target="Sharding"',
            'b0 = f32[8] custom-call(b), custom_call_target="xla.sdy.ShardingGroup"',
            "it has a result, f32[8]",
        ),
        ("a1 = f32[2,2] custom-call(a0)", "a1 = f32[4,2] custom-call(a0)", "shards of f32[4,2] are due"),
    ],
)
def test_malformed_calls_are_refused(old: str, new: str, message: str) -> None:
    text = GSPMD.replace(old, new, 1)
    with pytest.raises(UnsupportedOpError) as caught:
        per_device(parse_module(text))
    assert message in caught.value.message
