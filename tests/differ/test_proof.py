"""When a comparison is decided by a proof, and when the programs run in spite of it or for want of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.differ import comparison
from distxla.differ.comparison import Program, compare_programs, cut
from distxla.differ.report import Comparison
from distxla.ir.counts import Counts
from distxla.ir.shards import GlobalArray, Shards
from distxla.lazy_dataclass import replace
from distxla.text.shapes import parse_shape

SUM = "sum {{ a = {0}[] parameter(0)\n b = {0}[] parameter(1)\n ROOT c = {0}[] add(a, b) }}"
WHOLE = """HloModule whole
{sum}
ENTRY main {{
  x = {type}[16,4] parameter(0)
  zero = {type}[] constant(0)
  ROOT r = {type}[4] reduce(x, zero), dimensions={{0}}, to_apply=sum
}}"""
PARTS = """HloModule parts, num_partitions={devices}
{sum}
ENTRY main {{
  x = {type}[{rows},4] parameter(0)
  zero = {type}[] constant(0)
  part = {type}[4] reduce(x, zero), dimensions={{0}}, to_apply=sum
  {result}
}}"""
GROUPS = "channel_id=1, use_global_device_ids=true, replica_groups={{{{0,1,2,3}}}}"
RIGHT = f"ROOT r = {{type}}[4] all-reduce(part), {GROUPS}, to_apply=sum"
TWICE = RIGHT.replace("ROOT r", "s") + "\n  ROOT r = {type}[4] add(s, s)"
ROWS = Shards((4, 1), ((0, 0), (1, 0), (2, 0), (3, 0)))


def whole(element_type: str = "f32") -> Program:
    return Program(dx.parse(WHOLE.format(type=element_type, sum=SUM.format(element_type))))


def parts(element_type: str = "f32", result: str = RIGHT) -> Program:
    lines = result.format(type=element_type)
    text = PARTS.format(devices=4, rows=4, type=element_type, sum=SUM.format(element_type), result=lines)
    given = (GlobalArray(parse_shape(f"{element_type}[16,4]"), ROWS),)
    results = (GlobalArray(parse_shape(f"{element_type}[4]"), Shards.whole(1, 4)),)
    return Program(dx.parse(text), Counts(1, 4), given, results)


def numbers(dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=(16, 4)).astype(dtype)


def compared(sharded: Program, unsharded: Program, x: Any, **options: Any) -> Comparison:
    return compare_programs(sharded, unsharded, cut(sharded, [x]), [[x]], **options)


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*given: Any, **options: Any) -> None:
        raise AssertionError("a program ran")

    monkeypatch.setattr(comparison, "run_reference", run)


def test_nothing_runs(no_run: None) -> None:
    found = compared(parts(), whole(), numbers())
    assert found.same
    assert not found.compared
    assert {r.instruction: (r.twin, r.relation) for r in found.relations} == {
        "x": ("x", "a shard: dimension 0 over all devices"),
        "zero": (None, "made of constants"),
        "part": ("r", "partial sums over all devices"),
        "r": ("r", "the same"),
    }
    assert found.as_json()["proof"].startswith("1 result is equal for all inputs, up to the order of sums")
    assert found.as_json()["compared"] is False


@pytest.mark.parametrize(
    ("options", "has_proof"), [({"proof": False}, False), ({"tolerance": 1e-3}, False)], ids=["no proof", "tolerance"]
)
def test_the_programs_run_where_they_are_asked_to(options: dict[str, Any], has_proof: bool) -> None:
    found = compared(parts(), whole(), numbers(), **options)
    assert (found.same, found.compared, found.proof is not None) == (True, True, has_proof)
    assert "proof" not in found.as_json()


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("f32", np.float32)])
def test_numbers_count_where_a_proof_does_not_cover_them(name: str, dtype: Any) -> None:
    """Narrow floats round by much; infinities make other NaNs."""
    x = numbers(dtype)
    if name == "f32":
        x[0, 0] = np.inf
    found = compared(parts(name), whole(name), x)
    assert (found.same, found.compared) == (True, True)
    assert str(found).startswith("the same: 4 instructions compared; 1 result is equal for all inputs")


WIDE = """HloModule wide{header}
add {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }}
sum {{ a = f16[] parameter(0)\n b = f16[] parameter(1)\n ROOT c = f16[] add(a, b) }}
ENTRY main {{
  x = f16[{rows},4] parameter(0)
  wide = f32[{rows},4] convert(x)
  zero = f32[] constant(0)
  y = f32[4] reduce(wide, zero), dimensions={{0}}, to_apply=add
  {result}
}}"""


def test_what_differs_though_it_is_proved_is_no_fault_of_the_program() -> None:
    """The devices' parts are infinities of both signs where they become f16 before they are added."""
    result = f"part = f16[4] convert(y)\n  {RIGHT.format(type='f16')}"
    sharded = dx.parse(WIDE.format(header=", num_partitions=4", rows=4, result=result))
    unsharded = Program(dx.parse(WIDE.format(header="", rows=16, result="ROOT r = f16[4] convert(y)")))
    x = np.zeros((16, 4), np.float16)
    x[4:6], x[12:14] = 60000, -60000
    found = compared(replace(parts("f16"), module=sharded), unsharded, x)
    assert not found.same
    assert "1 result is equal for all inputs" in str(found)
    assert "what differs is rounding, overflow, or what is not finite" in str(found)


def test_a_wrong_program_is_not_proved() -> None:
    found = compared(parts(result=TWICE), whole(), numbers())
    assert not found.same
    assert found.proof is None
    assert found.first is not None


def test_arguments_that_are_not_the_parts_of_the_whole() -> None:
    """They are given for each device, and may be anything."""
    x = numbers()
    found = compare_programs(parts(), whole(), [[x[:4]]] * 4, [[x]])
    assert not found.same
    assert found.proof is None


def test_parameters_that_are_other_arguments() -> None:
    """Each program lacks one of two arguments."""
    x = numbers()
    one, other = replace(parts(), arguments=(0,)), replace(whole(), arguments=(1,))
    assert compare_programs(one, other, cut(one, [x]), [[x]]).proof is None
    assert compare_programs(one, replace(whole(), arguments=(0,)), cut(one, [x]), [[x]]).proof is not None


def test_two_programs_for_as_many_devices_are_cut_alike(no_run: None) -> None:
    x = np.ones((16, 4), np.float32)
    assert compare_programs(parts(), parts(), cut(parts(), [x]), cut(parts(), [x])).same
    swapped = (GlobalArray(parse_shape("f32[16,4]"), Shards((4, 1), ((1, 0), (0, 0), (2, 0), (3, 0)))),)
    with pytest.raises(AssertionError, match="a program ran"):
        compare_programs(parts(), replace(parts(), parameters=swapped), cut(parts(), [x]), cut(parts(), [x]))


@pytest.mark.parametrize(("reduction", "words"), [("add", "partial sums"), ("maximum", "local maxima")])
def test_relations_are_those_of_a_run(reduction: str, words: str) -> None:
    programs = [
        replace(p, module=dx.parse(str(p.module).replace(" add(", f" {reduction}("))) for p in (parts(), whole())
    ]
    x = np.abs(numbers()) if reduction == "maximum" else numbers()
    proved, run = (compared(*programs, x, proof=proof) for proof in (True, False))
    assert (proved.compared, run.compared) == (False, True)
    assert [(r.instruction, r.relation) for r in proved.relations] == [
        (r.instruction, r.relation) for r in run.relations
    ]
    assert f"{words} over all devices" in {r.relation for r in proved.relations}
