"""Contexts of sends and recvs go to their dones, by whatever way, and nowhere else."""

from __future__ import annotations

import pytest

from distxla.errors import VerificationError
from distxla.passes.verify import verify_module
from distxla.text.parser import parse_module
from tests.channel_case import ChannelCase
from tests.channel_programs import CASES

C = "(f32[2], u32[], token[])"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contexts_may_travel(case: ChannelCase) -> None:
    for _, module in case.modules():
        verify_module(module)


def entry(*lines: str, called: str = "") -> str:
    begin = f"""
  x = f32[2] parameter(0)
  t = token[] after-all()
  s = {C} send(x, t), channel_id=1
  r = {C} recv(t), channel_id=2
  """
    return f"{called}\nENTRY main {{{begin}" + "\n  ".join(lines) + "\n}"


LOOP = f"""
body {{
  p = (s32[], {C}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  c = {C} get-tuple-element(p), index=1
  t = token[] after-all()
  LINES
  ROOT q = (s32[], {C}) tuple(i, n)
}}
more {{
  p = (s32[], {C}) parameter(0)
  ROOT f = pred[] constant(false)
}}"""
ROUND = (
    "zero = s32[] constant(0)",
    f"st = (s32[], {C}) tuple(zero, r)",
    f"w = (s32[], {C}) while(st), condition=more, body=body",
    f"c = {C} get-tuple-element(w), index=1",
)


def loop(channel: int) -> str:
    """A body that ends the recv on channel 2 and begins one on `channel`."""
    lines = f"d = (f32[2], token[]) recv-done(c), channel_id=2\n  n = {C} recv(t), channel_id={channel}"
    return LOOP.replace("LINES", lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry(f"p = ({C}, {C}) tuple(r, s)", f"c = {C} get-tuple-element(p), index=1",
               "d = (f32[2], token[]) recv-done(c), channel_id=1", "ROOT z = f32[2] negate(x)"),
         r"recv-done.pair: d gets the context of s, which is a send"),
        (entry(f"p = ({C}) tuple(s)", f"c = {C} get-tuple-element(p), index=0",
               "d = token[] send-done(c), channel_id=3", "ROOT z = f32[2] negate(x)"),
         r"send-done.pair: channel_id is 3 here and 1 in s"),
        (entry("n = f32[2] get-tuple-element(r), index=0", "ROOT z = f32[2] negate(n)"),
         r"channel.context: n uses the context of r, which only its done may do"),
        (entry("n = u32[] get-tuple-element(s), index=1", "ROOT z = u32[] not(n)"),
         r"channel.context: n uses the context of s"),
        (entry(f"ROOT p = ({C}) tuple(r)"), r"channel.context: the program's result holds the context of r"),
        (entry(*ROUND, "d = (f32[2], token[]) recv-done(c), channel_id=2", "ROOT z = f32[2] negate(x)",
               called=loop(4)),
         r"recv-done.pair: channel_id is 2 here and 4 in n"),
        (entry(*ROUND, "d = (f32[2], token[]) recv-done(c), channel_id=5", "ROOT z = f32[2] negate(x)",
               called=loop(2)),
         r"recv-done.pair: channel_id is 5 here and 2 in n|recv-done.pair: channel_id is 5 here and 2 in r"),
        (f"ENTRY main {{ p = {C} parameter(0) d = token[] send-done(p), channel_id=1 ROOT z = f32[] constant(0) }}",
         r"send-done.pair: the operand of d comes from no send"),
    ],
)  # fmt: skip
def test_what_contexts_must_not_do(text: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message) as caught:
        verify_module(parse_module(text, "m.hlo"))
    assert caught.value.location is not None


def test_a_tuple_that_looks_like_a_context_is_none() -> None:
    state = f"({C}, u32[], token[])"
    verify_module(parse_module(entry(
        "k = u32[] constant(3)", f"p = {state} tuple(r, k, t)", f"c = {C} get-tuple-element(p), index=0",
        "m = u32[] get-tuple-element(p), index=1", "d = (f32[2], token[]) recv-done(c), channel_id=2",
        "sd = token[] send-done(s), channel_id=1", "ROOT z = u32[] not(m)",
    )))  # fmt: skip
