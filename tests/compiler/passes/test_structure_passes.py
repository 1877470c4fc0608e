"""Inlining, dead code, common subexpressions, combining of collectives."""

from __future__ import annotations

from distxla.compiler.passes.combine_collectives import CombineCollectives
from distxla.compiler.passes.common_subexpressions import CommonSubexpressions
from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.inline_calls import InlineCalls
from distxla.compiler.passes.simplify import Simplify
from tests.compiler.passes.equivalence import assert_same, changed, opcodes

CALLS = """HloModule m
inner { a = f32[4] parameter(0)
 b = f32[4] parameter(1)
 s = f32[4] subtract(b, a)
 ROOT t = (f32[4], f32[4]) tuple(s, a) }
outer { x = f32[4] parameter(0)
 s = f32[4] add(x, x)
 c = (f32[4], f32[4]) call(s, x), to_apply=inner
 g = f32[4] get-tuple-element(c), index=0
 ROOT m = f32[4] multiply(g, s) }
ENTRY e { x = f32[4] parameter(0)
 a = f32[4] call(x), to_apply=outer
 b = f32[4] fusion(a), kind=kLoop, calls=outer
 ROOT r = f32[4] add(a, b) }
"""


def test_calls_and_fusions_are_inlined_with_unique_names():
    module = changed(CALLS, InlineCalls())
    assert [c.name for c in module.computations] == ["e"]
    names = [i.name for i in module.entry_computation]
    assert len(set(names)) == len(names)
    assert "s" in names
    assert opcodes(module).count("subtract") == 2
    assert_same(CALLS, module)


def test_control_edges_of_calls_reach_what_they_hold():
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
f { a = f32[8] parameter(0)
 ROOT r = f32[8] all-reduce(a), replica_groups={}, to_apply=add }
ENTRY e { x = f32[8] parameter(0)
 p = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 q = f32[8] call(x), to_apply=f, control-predecessors={p}
 ROOT r = f32[8] add(p, x), control-predecessors={q} }
"""
    module = changed(text, InlineCalls())
    entry = module.entry_computation
    assert entry["r.1"].control_predecessors == ("p",)
    assert entry["r"].control_predecessors == ("r.1",)


def test_dead_code_keeps_parameters_and_effects_and_the_order_through_what_it_drops():
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
unused { ROOT a = f32[] parameter(0) }
ENTRY e { x = f32[8] parameter(0)
 y = f32[8] parameter(1)
 gone = f32[8] tanh(x)
 kept = f32[8] all-reduce(y), replica_groups={}, to_apply=add
 middle = f32[8] add(x, x), control-predecessors={kept}
 ROOT r = f32[8] add(x, x), control-predecessors={middle} }
"""
    module = changed(text, DeadCode())
    assert [i.name for i in module.entry_computation] == ["x", "y", "kept", "r"]
    assert module.entry_computation["r"].control_predecessors == ("kept",)
    assert [c.name for c in module.computations] == ["add", "e"]


def test_equal_expressions_and_computations_merge_but_not_effects_or_random_numbers():
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
also_add { p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT s = f32[] add(p, q) }
ENTRY e { x = f32[8] parameter(0)
 z = f32[] constant(0)
 z2 = f32[] constant(0)
 r1 = f32[] reduce(x, z), dimensions={0}, to_apply=add
 r2 = f32[] reduce(x, z2), dimensions={0}, to_apply=also_add
 c1 = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 c2 = f32[8] all-reduce(x), replica_groups={}, to_apply=also_add
 ROOT r = (f32[], f32[], f32[8], f32[8]) tuple(r1, r2, c1, c2) }
"""
    module = changed(text, CommonSubexpressions())
    assert opcodes(module) == ["constant", "reduce", "all-reduce", "all-reduce", "tuple"]
    assert module.entry_computation.root_instruction.operands == ("r1", "r1", "c1", "c2")
    assert [c.name for c in module.computations] == ["add", "e"]


COMBINE = """HloModule m
add {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[8] parameter(0)
 y = f32[3] parameter(1)
{body} }}
"""


def combined(body: str) -> list[str]:
    text = COMBINE.format(body=body)
    module = changed(text, CombineCollectives(), Simplify(), DeadCode())
    assert_same(text, module, replicas=4)
    return [code for code in opcodes(module) if code.startswith(("all-", "collective", "reduce-scatter"))]


def test_adjacent_all_reduces_share_a_round():
    assert combined(
        """ a = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 t = f32[8] tanh(a)
 b = f32[3] all-reduce(y), replica_groups={}, to_apply=add
 c = (f32[8], f32[3]) all-reduce(x, y), replica_groups={}, to_apply=add
 d = f32[3] get-tuple-element(c), index=1
 ROOT r = (f32[8], f32[3], f32[3]) tuple(t, b, d)"""
    ) == ["all-reduce"]


def test_dependent_ones_do_not():
    body = """ a = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 t = f32[8] tanh(a)
 b = f32[8] all-reduce(t), replica_groups={}, to_apply=add
 ROOT r = (f32[8], f32[8]) tuple(t, b)"""
    assert combined(body) == ["all-reduce", "all-reduce"]


def test_other_groups_and_what_stands_between_keep_them_apart():
    body = """ a = f32[8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add
 b = f32[3] all-reduce(y), replica_groups={{0,2},{1,3}}, to_apply=add
 g = f32[12] all-gather(y), replica_groups={{0,1,2,3}}, dimensions={0}
 c = f32[8] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=add
 ROOT r = (f32[8], f32[3], f32[12], f32[8]) tuple(a, b, g, c)"""
    assert combined(body) == ["all-reduce", "all-reduce", "all-gather", "all-reduce"]


def test_permutes_with_equal_pairs_share_a_round():
    body = """ a = f32[8] collective-permute(x), source_target_pairs={{0,1},{1,2}}
 b = f32[3] collective-permute(y), source_target_pairs={{0,1},{1,2}}
 ROOT r = (f32[8], f32[3]) tuple(a, b)"""
    assert combined(body) == ["collective-permute"]


def test_bound_on_the_bytes_of_a_round():
    text = COMBINE.format(
        body=""" a = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 b = f32[3] all-reduce(y), replica_groups={}, to_apply=add
 ROOT r = (f32[8], f32[3]) tuple(a, b)"""
    )
    module = changed(text)
    assert CombineCollectives(max_bytes=43).run(module) is module
    assert CombineCollectives(max_bytes=44).run(module) is not module
