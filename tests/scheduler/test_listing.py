"""`--emit schedule`: its whole text, and that it can be read and compiled again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings

from distxla.compiler.compile import optimised
from distxla.compiler.plan.plan_program import plan
from distxla.compiler.stages import emit
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from tests.samples import examples
from tests.scheduler.random_computations import computations

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*/*.hlo"))

PROGRAM = """HloModule steps, replica_count=2
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
body { s = (s32[], f32[64,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[64,64] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 z = f32[64,64] reduce-scatter(y), dimensions={0}, replica_groups={{0},{1}}, to_apply=sum
 ROOT r = (s32[], f32[64,64]) tuple(j, z) }
cond { s = (s32[], f32[64,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(5)
 ROOT p = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[64,64] parameter(0)
 zero = s32[] constant(0)
 n = f32[64,64] negate(x)
 s = ((f32[64,64]), f32[32,64]) reduce-scatter-start(n), dimensions={0}, replica_groups={{0,1}}, to_apply=sum
 d = f32[32,64] reduce-scatter-done(s)
 t = (s32[], f32[64,64]) tuple(zero, x)
 w = (s32[], f32[64,64]) while(t), condition=cond, body=body
 v = f32[64,64] get-tuple-element(w), index=1
 u = f32[32,64] dot(d, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = f32[32,64] tanh(u) }
"""

TEXT = """\
HloModule steps, is_scheduled=true, replica_count=2

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%fused_j (i: s32[]) -> s32[] {
  %i = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %j = s32[] add(%i, %one)
}

// at most 16448 bytes, beside the loop's state, in %y: 16384 of %y, 64 of %j
%body (s: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %s = (s32[], f32[64,64]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[64,64] get-tuple-element(%s), index=1
  %j = s32[] fusion(%i), kind=kLoop, calls=%fused_j                                              //    64 B +64
  %y = f32[64,64] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}                // 16448 B +16384
  %z = f32[64,64] reduce-scatter(%y), replica_groups={{0},{1}}, dimensions={0}, to_apply=%sum    // 16448 B -16384
  ROOT %r = (s32[], f32[64,64]) tuple(%j, %z)
}

%fused_p (i: s32[]) -> pred[] {
  %i = s32[] parameter(0)
  %n = s32[] constant(5)
  ROOT %p = pred[] compare(%i, %n), direction=LT
}

// at most 64 bytes, beside the loop's state, in %p: 64 of %p
%cond (s: (s32[], f32[64,64])) -> pred[] {
  %s = (s32[], f32[64,64]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  ROOT %p = pred[] fusion(%i), kind=kLoop, calls=%fused_p                                        // 64 B +64
}

%fused_n (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64] parameter(0)
  ROOT %n = f32[64,64] negate(%x)
}

%fused_r (u: f32[32,64]) -> f32[32,64] {
  %u = f32[32,64] parameter(0)
  ROOT %r = f32[32,64] tanh(%u)
}

%s.async (n: f32[64,64]) -> f32[32,64] {
  %n = f32[64,64] parameter(0)
  ROOT %s = f32[32,64] reduce-scatter(%n), replica_groups={{0,1}}, dimensions={0}, to_apply=%sum
}

// at most 57536 bytes, in %w: 16384 of %n, 16384 of %w, 8192 of %s, 64 of %s, 64 of 1 more, 16448 inside
ENTRY %e (x: f32[64,64]) -> f32[32,64] {
  %x = f32[64,64] parameter(0)
  %n = f32[64,64] fusion(%x), kind=kLoop, calls=%fused_n                                         // 16384 B +16384
  %s = ((f32[64,64]), f32[32,64]) async-start(%n), calls=%s.async                                // 24640 B +8256
  %zero = s32[] constant(0)
  %t = (s32[], f32[64,64]) tuple(%zero, %x)
  %w = (s32[], f32[64,64]) while(%t), condition=%cond, body=%body                                // 57536 B +16448 -64 (16448 inside)
  %d = f32[32,64] async-done(%s), calls=%s.async                                                 // 41024 B -16448
  %v = f32[64,64] get-tuple-element(%w), index=1
  %u = f32[32,64] dot(%d, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}                // 32768 B +8192 -24576
  ROOT %r = f32[32,64] fusion(%u), kind=kLoop, calls=%fused_r                                    //  8192 B -8192
}
"""  # noqa: E501


def listed(module: Module) -> str:
    replicas, partitions = module.replica_count or 1, module.num_partitions or 1
    text = emit(module, "schedule", Counts(replicas, partitions))
    assert isinstance(text, str)
    return text


def test_the_whole_text() -> None:
    assert listed(parse_module(PROGRAM)) == TEXT


def without_comments(text: str) -> list[str]:
    return [re.sub(r"\s*//.*", "", line) for line in text.splitlines()]


def test_it_is_a_schedule_that_gives_itself() -> None:
    """Names of fused computations grow; order and memory stay."""
    once = listed(parse_module(TEXT))
    notes = [re.sub(r"%\S+", "%", line.partition("//")[2]) for line in once.splitlines()]
    assert notes == [re.sub(r"%\S+", "%", line.partition("//")[2]) for line in TEXT.splitlines()]


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_of_every_program_it_can_be_read_again_and_tells_the_arenas_size(path: Path) -> None:
    module = parse_module(path.read_text(), str(path))
    text = listed(module)
    verify_module(parse_module(text))
    found = re.search(r"// at most (\d+) bytes, [^\n]*\nENTRY", text)
    assert found is not None
    arena = plan(optimised(module), Counts(module.replica_count or 1, module.num_partitions or 1)).arena_bytes
    assert int(found[1]) <= arena <= 1.06 * int(found[1])


@given(computations())
@settings(max_examples=examples(30), deadline=None)
def test_of_any_computation_it_can_be_read_again(text: str) -> None:
    found = listed(parse_module(text))
    again = parse_module(found)
    verify_module(again)
    assert again.is_scheduled


NUMBERS = re.compile(r"// +(\d+) B(?: \+(\d+))?(?: -(\d+))?(?: \((\d+) inside\))?$")


@given(computations())
@settings(max_examples=examples(30), deadline=None)
def test_numbers_add_up(text: str) -> None:
    """What is in use is what was left, and what is added, and what is needed inside."""
    entry = listed(parse_module(text)).partition("ENTRY")[2]
    live = 0
    for line in entry.splitlines():
        found = NUMBERS.search(line)
        if found is not None:
            running, added, freed, inside = (int(number or 0) for number in found.groups())
            assert running == live + added + inside
            live += added - freed
    assert live == 0
