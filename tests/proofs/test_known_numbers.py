"""Proofs on HLO text: integers at the ends of their types, sums of iotas, replicas of a global module, names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

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
    return prove(Sharded(sharded, 2, 1), unsharded)


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


def test_every_replica_has_the_arrays_of_a_global_module() -> None:
    halves = GlobalArray(parse_shape("f32[8]"), Shards((2,), ((0,), (1,))))
    own, whole = (
        parse_module(f"HloModule m\nENTRY main {{\n  p = f32[{n}] parameter(0)\n  ROOT r = f32[{n}] negate(p)\n}}")
        for n in (4, 8)
    )
    assert prove(Sharded(own, 2, 2, (halves,), (halves,)), whole).outcome is Outcome.EQUAL


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
    found = prove(Sharded(parse_module(text.format(op="sine"), "m.hlo"), 2, 1), parse_module(text.format(op="cosine")))
    assert found.outcome is Outcome.UNDECIDED
    assert str(found.location) == "m.hlo:4:19"
