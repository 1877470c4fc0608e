"""Contexts of sends and recvs go to their dones, by whatever way, and nowhere else (rewrites/context_flow.py)."""

from __future__ import annotations

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import VerificationError
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


def group(body: str, behind: str, outputs: str, computations: str = "") -> str:
    """An async-start of a send s, a recv r and `body`; behind its done stands `behind`."""
    return f"""{computations}
g {{
  x = f32[2] parameter(0)
  t = token[] parameter(1)
  s = {C} send(x, t), channel_id=1
  r = {C} recv(t), channel_id=2
  {body}
}}
ENTRY main {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  b = ((f32[2], token[]), {outputs}, s32[]) async-start(x, t), calls=g
  e = {outputs} async-done(b)
  {behind}
}}"""


BOTH = f"({C}, {C})"
ENDS = f"c = {C} get-tuple-element(e), index=1\n  d = (f32[2], token[]) recv-done(c), channel_id=2\n  "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (group(f"ROOT o = {BOTH} tuple(s, r)", ENDS + "ROOT v = f32[2] get-tuple-element(c), index=0", BOTH),
         r"<text>:16:36: .*channel.context: v uses the context of r, which only its done may do"),
        (group(f"n = u32[] get-tuple-element(r), index=1\n  ROOT o = (u32[], {C}) tuple(n, r)",
               ENDS + "ROOT v = f32[2] get-tuple-element(d), index=0", f"(u32[], {C})"),
         r"<text>:7:30: .*channel.context: n uses the context of r, which only its done may do"),
        (group(f"ROOT o = {BOTH} tuple(s, r)", ENDS.replace("=2", "=3") + "ROOT z = f32[2] negate(x)", BOTH),
         r"<text>:15:39: .*recv-done.pair: channel_id is 3 here and 2 in r"),
        (group(f"ROOT o = {BOTH} tuple(r, s)", ENDS + "ROOT z = f32[2] negate(x)", BOTH),
         r"<text>:15:34: .*recv-done.pair: d gets the context of s, which is a send"),
        (group(f"zero = s32[] constant(0)\n  p = (s32[], {C}) tuple(zero, r)\n"
               f"  w = (s32[], {C}) while(p), condition=more, body=body\n  q = {C} get-tuple-element(w), index=1\n"
               "  ROOT o = f32[2] get-tuple-element(q), index=0", "ROOT z = f32[2] negate(e)", "f32[2]",
               LOOP.replace("LINES", f"n = {C} recv(t), channel_id=2")),
         r"<text>:\d+:\d+: .*channel.context: o uses the context of n, which only its done may do"),
    ],
)  # fmt: skip
def test_async_done_ends_what_nothing_else_ends(text: str, message: str) -> None:
    """Then its context is a value; that of another one, or of one begun in a loop, stays a context."""
    with pytest.raises(VerificationError, match=message):
        verify_module(parse_module(text, "<text>"))
