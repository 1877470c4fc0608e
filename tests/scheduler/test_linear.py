"""Execution order: edges hold, effects keep their order, nothing moves without need."""

from __future__ import annotations

from distxla.ir.order import ancestors, stable_order
from distxla.scheduler.linear import schedule
from distxla.text.parser import parse_module

TEXT = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0)
 a = f32[8] negate(x)
 b = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 c = f32[8] all-reduce(a), replica_groups={}, to_apply=add
 ROOT r = f32[8] add(b, c) }
"""


def test_a_good_order_stays():
    module = parse_module(TEXT, "<test>")
    scheduled = schedule(module)
    assert scheduled.is_scheduled
    assert scheduled.entry_computation is module.entry_computation


def test_effects_keep_their_order_where_others_move():
    module = parse_module(TEXT.replace("negate(x)", "negate(x), control-predecessors={x}"), "<test>")
    entry = module.entry_computation
    order = [entry[n] for n in ("x", "a", "b", "c", "r")]
    late = entry["a"].replace(control_predecessors=())
    # as a rewriting may leave it: `a` behind its user
    moved = stable_order([order[0], order[2], order[3], late, order[4]], [("b", "c")])
    assert [i.name for i in moved] == ["x", "b", "a", "c", "r"]


def test_loops_with_collectives_inside_have_a_place_in_the_order():
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
body { s = f32[8] parameter(0)
 ROOT r = f32[8] all-reduce(s), replica_groups={}, to_apply=add }
cond { s = f32[8] parameter(0)
 ROOT p = pred[] constant(false) }
ENTRY e { x = f32[8] parameter(0)
 w = f32[8] while(x), condition=cond, body=body
 c = f32[8] all-reduce(x), replica_groups={}, to_apply=add
 ROOT r = f32[8] add(w, c) }
"""
    names = [i.name for i in schedule(parse_module(text, "<test>")).entry_computation]
    assert names.index("w") < names.index("c")


def test_ancestors_are_transitive():
    entry = parse_module(TEXT, "<test>").entry_computation
    above = ancestors(entry.instructions)
    assert above["x"] == 0
    assert above["r"] == 0b1111
