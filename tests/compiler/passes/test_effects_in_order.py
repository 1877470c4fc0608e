"""Programs with transfers keep their order; others are left alone."""

from __future__ import annotations

from distxla.compiler.passes.effects_in_order import EffectsInOrder
from distxla.compiler.pipeline import Pipeline
from distxla.ir.effects import Effects
from distxla.scheduler.computation_order import schedule
from distxla.text.parser import parse_module

TRANSFER = """
ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] negate(x)
  t = token[] after-all()
  r = (f32[64], u32[], token[]) recv(t), PAIRS
  s = (f32[64], u32[], token[]) send(y, t), PAIRS
  rd = (f32[64], token[]) recv-done(r)
  sd = token[] send-done(s)
  v = f32[64] get-tuple-element(rd), index=0
  z = f32[64] add(x, v)
  ROOT q = (f32[64], f32[64]) tuple(y, z)
}""".replace("PAIRS", "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}")


def test_no_loop_computes_what_is_sent_together_with_what_is_made_of_the_received() -> None:
    module = schedule(Pipeline(verify=True).before("schedule").run(parse_module(TRANSFER)).module)
    effects = [i.opcode for i in module.entry_computation if i.op.effects is Effects.CHANNEL]
    assert effects == ["recv", "send", "recv-done", "send-done"]


def test_each_waits_for_the_one_before_it() -> None:
    module = EffectsInOrder().run(parse_module(TRANSFER))
    edges = {i.name: i.control_predecessors for i in module.entry_computation if i.control_predecessors}
    assert edges == {"s": ("r",), "rd": ("s",), "sd": ("rd",)}


def test_collectives_alone_stay_as_they_are() -> None:
    module = parse_module("""
    sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
    ENTRY main { x = f32[2] parameter(0) y = f32[2] all-reduce(x), to_apply=sum
      ROOT z = f32[2] all-reduce(y), to_apply=sum }""")
    assert EffectsInOrder().run(module) is module


SCHEDULED = """HloModule m, is_scheduled=true
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[64] parameter(0)
  s = f32[64] all-reduce-start(x), to_apply=sum
  d = f32[64] all-reduce-done(s)
  y = f32[64] collective-permute(x), source_target_pairs={{0,1}}
  ROOT z = (f32[64], f32[64]) tuple(d, y)
}"""


def test_in_a_schedule_every_effect_keeps_its_place() -> None:
    module = Pipeline(verify=True).before("schedule").run(parse_module(SCHEDULED)).module
    assert module.is_scheduled
    edges = {i.name: i.control_predecessors for i in module.entry_computation if i.control_predecessors}
    assert edges == {"y": ("d",)}


def test_what_only_waits_is_waited_for_by_nobody() -> None:
    text = TRANSFER.replace("rd = ", "early = token[] send-done(s)\n  rd = ").replace("sd = token[] send-done(s)", "")
    module = EffectsInOrder().run(parse_module(text))
    edges = {i.name: i.control_predecessors for i in module.entry_computation if i.control_predecessors}
    assert edges == {"s": ("r",), "rd": ("s",)}
