"""Proofs on HLO text: integers at the ends of their types, sums of iotas, replicas of a global module, names."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.shards import GlobalArray, Shards
from distxla.proofs.prove import Sharded, prove
from distxla.proofs.verdict import Outcome, Verdict
from distxla.text.parser import parse_module
from distxla.text.shapes import parse_shape

LEAST = -(1 << 63)


def verdict(own: Sequence[str], whole: Sequence[str]) -> Verdict:
    """own: run by two replicas."""
    sharded, unsharded = (
        parse_module(f"HloModule m\nENTRY main {{\n{chr(10).join(lines)}\n}}") for lines in (own, whole)
    )
    return prove(Sharded(sharded, Counts(2, 1)), unsharded)


def clipped(number: int) -> list[str]:
    return [
        "p = s64[2] parameter(0)",
        f"a = s64[] constant({number})",
        "b = s64[2] broadcast(a), dimensions={}",
        "ROOT r = s64[2] maximum(p, b)",
    ]


@pytest.mark.parametrize("other", [LEAST, LEAST + 1, -(1 << 62), -(1 << 60) - 1, -(1 << 53), 0])
def test_large_integers_are_the_same_only_as_themselves(other: int) -> None:
    expected = Outcome.EQUAL if other == LEAST else Outcome.UNDECIDED
    assert verdict(clipped(LEAST), clipped(other)).outcome is expected


def sum_of_iotas(kind: str) -> list[str]:
    return [
        f"p = {kind}[3,3] parameter(0)",
        "x = s32[3,3] iota(), iota_dimension=0",
        "y = s32[3,3] iota(), iota_dimension=1",
        f"a = {kind}[3,3] convert(x)",
        f"b = {kind}[3,3] convert(y)",
        f"c = {kind}[3,3] add(a, b)",
        f"ROOT r = {kind}[3,3] add(c, p)",
    ]


@pytest.mark.parametrize("kind", ["pred", "s4", "u4", "s8", "u64"])
def test_sums_of_iotas_of_every_type(kind: str) -> None:
    assert verdict(sum_of_iotas(kind), sum_of_iotas(kind)).outcome is Outcome.EQUAL


def reduced_ids(kind: str, opcode: str, more: int) -> str:
    """The ids of two replicas, each with a number added, reduced and added to an argument."""
    return f"""HloModule m
c {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {opcode}(a, b)
}}
ENTRY main {{
  p = {kind}[] parameter(0)
  i = u32[] replica-id()
  j = {kind}[] convert(i)
  n = {kind}[] constant({more})
  m = {kind}[] add(j, n)
  s = {kind}[] all-reduce(m), replica_groups={{}}, to_apply=c
  ROOT r = {kind}[] add(p, s)
}}"""


@pytest.mark.parametrize(
    ("kind", "opcode", "more", "expected"),
    [
        ("u32", "or", 1, 3),
        ("u32", "and", 1, 0),
        ("s32", "and", -1, 0),
        ("u32", "maximum", 1, 2),
        ("u32", "minimum", 1, 1),
        ("s32", "add", 1, 3),
        ("s8", "add", 100, -55),
        ("u8", "add", 200, 145),
        ("s4", "add", 4, -7),
    ],
)
def test_reduced_integers_have_their_bits(kind: str, opcode: str, more: int, expected: int) -> None:
    own = Sharded(parse_module(reduced_ids(kind, opcode, more)), Counts(2, 1))
    for number in {0, 1, 2, 3, expected}:
        lines = f"p = {kind}[] parameter(0)", f"k = {kind}[] constant({number})", f"ROOT r = {kind}[] add(p, k)"
        outcome = prove(own, parse_module("HloModule m\nENTRY main {" + chr(10).join(lines) + "}")).outcome
        assert (outcome is Outcome.EQUAL) == (number == expected), number


def test_results_may_be_numbers() -> None:
    own = ["i = u32[] replica-id()", "z = u32[] constant(5)", "ROOT m = pred[] compare(i, z), direction=LT"]
    assert verdict(own, ["ROOT m = pred[] constant(true)"]).outcome is Outcome.EQUAL
    assert verdict(own, ["ROOT m = pred[] constant(false)"]).outcome is not Outcome.EQUAL


@pytest.mark.parametrize("kind", ["f32", "s32"])
def test_multiples_of_integers_wrap(kind: str) -> None:
    own = ["p = X[2] parameter(0)", "q = X[2] parameter(1)", "a = X[2] add(p, p)", "b = X[2] add(q, q)"]
    whole = ["p = X[2] parameter(0)", "q = X[2] parameter(1)", "m = X[2] maximum(p, q)", "ROOT r = X[2] add(m, m)"]
    own, whole = (
        [line.replace("X", kind) for line in lines] for lines in ([*own, "ROOT r = X[2] maximum(a, b)"], whole)
    )
    assert verdict(own, whole).outcome is (Outcome.EQUAL if kind == "f32" else Outcome.UNDECIDED)


def test_devices_may_meet_in_different_branches() -> None:
    """The devices' collectives meet, although their operands come from different branches."""
    text = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
t {{
  x = f32[2] parameter(0)
  ROOT y = f32[2] all-reduce(x), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add
}}
f {{
  x = f32[2] parameter(0)
  n = f32[2] negate(x)
  a = f32[2] all-reduce(n), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add
  ROOT y = f32[2] negate(a)
}}
ENTRY main {{
  p = f32[2] parameter(0)
  i = u32[] {selector}
  c = pred[] convert(i)
  ROOT r = f32[2] conditional(c, p, p), true_computation=t, false_computation=f
}}"""
    whole = parse_module("HloModule m\nENTRY main {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] add(p, p)\n}")
    for selector, expected in (("replica-id()", Outcome.UNDECIDED), ("constant(1)", Outcome.EQUAL)):
        own = Sharded(parse_module(text.format(selector=selector)), Counts(2, 1))
        assert prove(own, whole).outcome is expected


def test_every_replica_has_the_arrays_of_a_global_module() -> None:
    halves = GlobalArray(parse_shape("f32[8]"), Shards((2,), ((0,), (1,))))
    own, whole = (
        parse_module(f"HloModule m\nENTRY main {{\n  p = f32[{n}] parameter(0)\n  ROOT r = f32[{n}] negate(p)\n}}")
        for n in (4, 8)
    )
    assert prove(Sharded(own, Counts(2, 2), (halves,), (halves,)), whole).outcome is Outcome.EQUAL


def test_the_place_is_in_the_computation_that_is_called() -> None:
    """Computations of one text may have the same names."""
    text = """HloModule m
inner {{
  x = f32[2] parameter(0)
  ROOT y = f32[2] {op}(x)
}}
other {{
  x = f32[2] parameter(0)
  ROOT y = f32[2] negate(x)
}}
ENTRY main {{
  p = f32[2] parameter(0)
  q = f32[2] call(p), to_apply=other
  ROOT r = f32[2] call(q), to_apply=inner
}}"""
    found = prove(
        Sharded(parse_module(text.format(op="sine"), "m.hlo"), Counts(2, 1)), parse_module(text.format(op="cosine"))
    )
    assert found.outcome is Outcome.UNDECIDED
    assert str(found.location) == "m.hlo:4:19"


def test_an_array_is_no_token() -> None:
    own = ["x = f32[2] parameter(0)", "t = token[] after-all()", "ROOT r = (f32[2], token[]) tuple(x, t)"]
    whole = ["x = f32[2] parameter(0)", "ROOT r = (f32[2], f32[2]) tuple(x, x)"]
    with pytest.raises(ArgumentError, match=re.escape("result 1 of the sharded program is token[], that of")):
        verdict(own, whole)
