"""Sharded HLO beside unsharded HLO: results, relations, the first difference, without JAX."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import distxla as dx
from distxla.differ import comparison
from distxla.differ.comparison import MEMORY, Limits, Program, compare_programs, cut, recorded
from distxla.differ.recording import Recording
from distxla.differ.report import Comparison
from distxla.differ.value_store import ValueStore
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.shards import GlobalArray, Shards
from distxla.text.shapes import parse_shape

DEVICES = 4
SUM = "%sum (a: f32[], b: f32[]) -> f32[] { %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %c = f32[] add(a, b) }"
WHOLE = """HloModule whole
ENTRY %main (x: f32[4,8], w: f32[8,4]) -> f32[4,4] {
  %x = f32[4,8] parameter(0)
  %w = f32[8,4] parameter(1)
  %dot = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="dot" source_file="model.py" source_line=3}
  ROOT %tanh = f32[4,4] tanh(dot), metadata={op_name="tanh" source_file="model.py" source_line=5}
}"""  # noqa: E501
SHARDED = """HloModule sharded, num_partitions=4
{sum}
ENTRY %main (x: f32[4,2], w: f32[2,4]) -> f32[4,4] {{
  %x = f32[4,2] parameter(0)
  %w = f32[2,4] parameter(1)
  %dot = f32[4,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="dot" source_file="model.py" source_line=3}}
  {reduced}
  ROOT %tanh = f32[4,4] tanh({operand}), metadata={{op_name="tanh" source_file="model.py" source_line=5}}
}}"""  # noqa: E501
ALL_REDUCE = (
    "%psum = f32[4,4] all-reduce({operand}), replica_groups={groups}, channel_id=1, use_global_device_ids=true, "
    'to_apply=%sum, metadata={{op_name="psum" source_file="model.py" source_line=4}}'
)
ALL = "{{0,1,2,3}}"


def sharded(reduced: str, operand: str) -> Program:
    module = dx.parse(SHARDED.format(sum=SUM, reduced=reduced, operand=operand))
    columns = Shards((1, DEVICES), tuple((0, d) for d in range(DEVICES)))
    rows = Shards((DEVICES, 1), tuple((d, 0) for d in range(DEVICES)))
    parameters = GlobalArray(parse_shape("f32[4,8]"), columns), GlobalArray(parse_shape("f32[8,4]"), rows)
    results = (GlobalArray(parse_shape("f32[4,4]"), Shards.whole(2, DEVICES)),)
    return Program(module, counts=Counts(1, DEVICES), parameters=parameters, results=results)


def compared(program: Program, **options: float | int) -> Comparison:
    random = np.random.default_rng(0)
    args = [random.normal(size=size).astype(np.float32) for size in ((4, 8), (8, 4))]
    whole = Program(dx.parse(WHOLE))
    return compare_programs(program, whole, cut(program, args), [args], **options)  # type: ignore[arg-type]


def all_reduce(operand: str = "dot", groups: str = ALL) -> str:
    return ALL_REDUCE.format(operand=operand, groups=groups)


def relations(found: Comparison) -> dict[str, str]:
    return {one.instruction: one.relation for one in found.relations}


@pytest.mark.parametrize("proof", [True, False])
def test_a_right_program_is_the_same(proof: bool) -> None:
    found = compared(sharded(all_reduce(), "psum"), proof=proof)
    assert found.same
    assert found.compared is not proof
    assert found.first is None
    assert relations(found)["dot"] == "partial sums over all devices"
    assert relations(found)["x"] == "a shard: dimension 1 over all devices"
    assert relations(found)["psum"] == relations(found)["tanh"] == "the same"


def test_a_missing_sum() -> None:
    found = compared(sharded("", "dot"))
    assert not found.same
    assert found.first is not None
    assert (found.first.kind, found.first.instruction, found.first.source) == ("not reduced", "dot", "model.py:3")
    assert (found.first.use, found.first.use_source) == ("tanh", "model.py:5")
    assert "a psum over all devices is missing at model.py:3" in found.first.hint


def test_a_sum_over_other_groups() -> None:
    found = compared(sharded(all_reduce(groups="{{0,1},{2,3}}"), "psum"))
    assert found.first is not None
    assert (found.first.kind, found.first.source) == ("not reduced", "model.py:4")
    assert "partial sums over all devices, of 2 times the whole" in found.first.hint


def test_a_second_sum() -> None:
    text = all_reduce() + "\n  " + all_reduce("psum").replace("%psum", "%again").replace("channel_id=1", "channel_id=2")
    found = compared(sharded(text, "again"))
    assert found.first is not None
    assert (found.first.kind, found.first.instruction) == ("times", "again")
    assert "again (model.py:4) is 4 times the unsharded value" in found.first.hint


def test_values_in_a_file_give_the_same_answer() -> None:
    assert compared(sharded("", "dot"), memory=0) == compared(sharded("", "dot"))


def test_a_tolerance_of_the_caller() -> None:
    assert compared(sharded("", "dot"), tolerance=10.0).same


def test_two_programs_for_as_many_devices() -> None:
    right, wrong = sharded(all_reduce(), "psum"), sharded("", "dot")
    rows = [[np.full((4, 2), d + 1, np.float32), np.full((2, 4), 0.1, np.float32)] for d in range(DEVICES)]
    assert compare_programs(right, right, rows, rows).same
    found = compare_programs(wrong, right, rows, rows)
    assert not found.same
    assert found.first is not None
    assert (found.first.instruction, found.first.use) == ("dot", "tanh")
    assert "the unsharded program uses psum (model.py:4) there" in found.first.hint


def test_rounding_is_not_measured_where_no_value_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def moved(*_: object) -> Iterator[Recording]:
        runs.append(1)
        yield from ()

    monkeypatch.setattr(comparison, "moved_runs", moved)
    right = sharded(all_reduce(), "psum")
    rows = [[np.full((4, 2), d + 1, np.float32), np.full((2, 4), 0.1, np.float32)] for d in range(DEVICES)]
    near = [[np.nextafter(a, np.float32(9)) for a in row] for row in rows]
    assert compare_programs(right, right, rows, rows, proof=False).same
    assert compare_programs(right, right, near, rows, proof=False).same
    assert not runs
    assert not compare_programs(right, right, [[a * 2 for a in row] for row in rows], rows, proof=False).same
    assert runs == [1]


ITERATIONS = """HloModule loop
more {{
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT{less}
}}
next {{
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one){add}
  half = f32[4] multiply(x, x){multiply}
  quarter = f32[4] multiply(half, x){multiply}
  ROOT t = (s32[], f32[4]) tuple(j, quarter)
}}
ENTRY main {{
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(start), condition=more, body=next
  ROOT last = f32[4] get-tuple-element(w), index=1
}}"""


def test_a_program_without_names_is_aligned_by_opcodes() -> None:
    names = {"less": "lt", "add": "plus", "multiply": "mul"}
    named = ITERATIONS.format(**{k: f', metadata={{op_name="{name}"}}' for k, name in names.items()})
    bare = ITERATIONS.format(less="", add="", multiply="")
    programs = [Program(dx.parse(text), Counts(2, 1)) for text in (bare, named)]
    rows = [[np.array([0, 0, 0, 1], np.float32)]] * 2  # so numbers tell nothing
    found = compare_programs(*programs, rows, rows, proof=False)
    assert found.same
    assert all(one.twin in (one.instruction, None) for one in found.relations)
    assert ("quarter", "quarter") in [(one.instruction, one.twin) for one in found.relations]


def test_other_results_are_refused() -> None:
    one = dx.parse("HloModule one ENTRY %main (x: f32[2]) -> (f32[2], f32[2]) { %x = f32[2] parameter(0) "
                   "ROOT %t = (f32[2], f32[2]) tuple(x, x) }")  # fmt: skip
    two = dx.parse("HloModule two ENTRY %main (x: f32[2]) -> f32[2] { ROOT %x = f32[2] parameter(0) }")
    with pytest.raises(ArgumentError, match="expected as many results of both programs, found 2 and 1"):
        compare_programs(Program(one), Program(two), [[np.zeros(2, "f")]], [[np.zeros(2, "f")]])


LOOP = """HloModule loop{header}
{sum}
%body (state: (s32[], f32[4])) -> (s32[], f32[4]) {{
  %state = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(state), index=0
  %x = f32[4] get-tuple-element(state), index=1
  %one = s32[] constant(1)
  %next = s32[] add(i, one)
  %half = f32[] constant(0.5)
  %halves = f32[4] broadcast(half), dimensions={{}}
  %less = f32[4] multiply(x, halves), metadata={{op_name="less" source_file="loop.py" source_line=2}}
  {step}
  ROOT %result = (s32[], f32[4]) tuple(next, {carried})
}}
%more (state: (s32[], f32[4])) -> pred[] {{
  %state = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(state), index=0
  %three = s32[] constant(3)
  ROOT %lt = pred[] compare(i, three), direction=LT
}}
ENTRY %main (x: f32[4]) -> f32[4] {{
  %x = f32[4] parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[4]) tuple(zero, x)
  %while = (s32[], f32[4]) while(start), condition=%more, body=%body
  ROOT %last = f32[4] get-tuple-element(while), index=1
}}"""
LATER = """%two = s32[] constant(2)
  %is = pred[] compare(i, two), direction=EQ
  %sums = f32[4] all-reduce(less), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, to_apply=%sum
  %choose = f32[4] select(is, sums, less), metadata={op_name="choose" source_file="loop.py" source_line=4}"""


def test_from_which_iteration_on() -> None:
    wrong = dx.parse(LOOP.format(header=", num_partitions=2", sum=SUM, step=LATER, carried="choose"))
    whole = dx.parse(LOOP.format(header="", sum="", step="", carried="less"))
    args = [np.array([3, -1, 0.1, 7], np.float32)]
    found = compare_programs(Program(wrong, Counts(1, 2)), Program(whole), [args] * 2, [args])
    assert found.first is not None
    assert (found.first.instruction, found.first.iteration) == ("sums", 2)
    assert "in iterations 0 to 1 choose (loop.py:4) is right" in found.first.hint


ONE = "HloModule one\nENTRY main {{\n  {lines}\n}}"
ADDED = "p = f32[4] parameter(0)\n  k = f32[4] constant({%s})\n  ROOT a = f32[4] add(p, k)"
SOURCE = ', metadata={op_name="add" source_file="model.py" source_line=3}'


def of_two(own: str, whole: str, *args: np.ndarray) -> Comparison:
    """The first text on two replicas, which have the arguments of the second one."""
    sharded, unsharded = (
        Program(dx.parse(ONE.format(lines=lines)), Counts(count, 1)) for lines, count in ((own, 2), (whole, 1))
    )
    return compare_programs(sharded, unsharded, [list(args)] * 2, [list(args)])


def test_equal_infinities_are_no_difference_to_show() -> None:
    found = of_two(ADDED % "1, inf, 1, 5" + SOURCE, ADDED % "1, inf, 1, 1" + SOURCE, np.arange(4, dtype=np.float32))
    assert found.first is not None
    assert (found.first.sharded, found.first.unsharded) == (
        "float32[4]: 8.0 at [3] on device 0",
        "float32[4]: 4.0 at [3]",
    )


def test_another_constant() -> None:
    found = of_two("ROOT r = f32[] constant(2)", "ROOT r = f32[] constant(3)")
    assert found.first is not None
    assert found.first.hint == "r is made of constants, and the unsharded result has other values"


def test_a_token_is_no_array() -> None:
    lines = "p = f32[2] parameter(0)\n  t = token[] after-all()\n  ROOT r = (f32[2], {}) tuple(p, {})"
    with pytest.raises(ArgumentError, match="out1: expected an array as in the unsharded program, found a token"):
        of_two(lines.format("token[]", "t"), lines.format("f32[2]", "p"), np.ones(2, np.float32))


def test_rounding_is_measured_of_instructions_that_are_rewritten() -> None:
    """A sum of two types of floats becomes a conversion and a sum."""
    lines = "p = bf16[64] parameter(0)\n  q = f32[64] parameter(1)\n  ROOT r = f32[64] add(p, q)"
    random = np.random.default_rng(0)
    p, q = random.normal(size=64).astype(ml_dtypes.bfloat16), random.normal(size=64).astype(np.float32)
    with ValueStore(MEMORY) as store:
        program = Program(dx.parse(ONE.format(lines=lines)))
        plain, moved = (recorded(program, [[a, q]], store, None)[0] for a in (p, np.nextafter(p, p + 1)))
        root = plain.arrays[-1]
        assert root.instruction.name == "r"
        assert Limits([moved], None)(root).distance > Limits([], None)(root).distance
