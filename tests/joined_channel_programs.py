"""Programs whose sends have other channel ids than their recvs: only their pairs, and the order, say what belongs
together."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tests.channel_case import ChannelCase, annotated, mine
from tests.channel_programs import CASES as SAME_IDS

BEGIN = re.compile(r"\s*(\S+) = .* (send|recv)\(")
DONE = re.compile(r".* (send|recv)-done\((\S+)\)")
CHANNEL = re.compile(r", channel_id=\d+")


def renumbered(text: str, *, every: bool) -> str:
    """The program with channel 11 for sends and 12 for recvs. every: each of them on a channel of its own, whose dones
    take its context directly."""
    ids = {"send": 11, "recv": 12}
    own: dict[str, int] = {}
    lines = []
    for line in text.splitlines():
        if (begin := BEGIN.match(line)) is not None:
            name, kind = begin.groups()
            number = own.setdefault(name, 20 + len(own)) if every else ids[kind]
        elif (done := DONE.match(line)) is not None:
            kind, name = done.groups()
            number = own[name] if every else ids[kind]
        else:
            lines.append(line)
            continue
        lines.append(f"{CHANNEL.sub('', line)}, channel_id={number}")
    return "\n".join(lines)


def _apart(case: ChannelCase, *, every: bool = False) -> ChannelCase:
    programs = tuple((devices, renumbered(text, every=every)) for devices, text in case.programs)
    return replace(case, name=f"{case.name}_{'each_alone' if every else 'apart'}", programs=programs)


def _two_programs() -> ChannelCase:
    """One program sends, another one receives."""
    send = f"""
ENTRY main {{
  x = f32[3] parameter(0)
  t = token[] after-all()
  s = (f32[3], u32[], token[]) send(x, t), channel_id=1, {annotated("{{0,1}}")}
  sd = token[] send-done(s), channel_id=1
  ROOT y = f32[3] negate(x)
}}"""
    recv = f"""
ENTRY main {{
  x = f32[3] parameter(0)
  t = token[] after-all()
  r = (f32[3], u32[], token[]) recv(t), channel_id=2, {annotated("{{0,1}}")}
  rd = (f32[3], token[]) recv-done(r), channel_id=2
  ROOT y = f32[3] get-tuple-element(rd), index=0
}}"""
    return ChannelCase("two_programs_apart", (((0,), send), ((1,), recv)), lambda d: [mine(d, 3)],
                       lambda d: [mine(0, 3) * np.float32(1 if d else -1)], replicas=2)  # fmt: skip


def _peeled(steps: int) -> ChannelCase:
    """The first send stands before the loop, the last recv behind it: the k-th that is executed meets the k-th."""
    pairs = annotated("{{0,1}}")
    text = f"""
body {{
  p = (s32[], f32[2], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[2] get-tuple-element(p), index=1
  sum = f32[2] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[2] add(v, v)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=4, {pairs}
  s = (f32[2], u32[], token[]) send(w, t), channel_id=3, {pairs}
  rd = (f32[2], token[]) recv-done(r), channel_id=4
  sd = token[] send-done(s), channel_id=3
  got = f32[2] get-tuple-element(rd), index=0
  next = f32[2] add(sum, got)
  ROOT q = (s32[], f32[2], f32[2]) tuple(j, w, next)
}}
more {{
  p = (s32[], f32[2], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({steps})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[2] parameter(0)
  zero = s32[] constant(0)
  none = f32[2] constant({{0, 0}})
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, {pairs}
  p = (s32[], f32[2], f32[2]) tuple(zero, x, none)
  w = (s32[], f32[2], f32[2]) while(p), condition=more, body=body
  sd = token[] send-done(s), channel_id=1
  r = (f32[2], u32[], token[]) recv(t), channel_id=2, {pairs}
  rd = (f32[2], token[]) recv-done(r), channel_id=2
  got = f32[2] get-tuple-element(rd), index=0
  sum = f32[2] get-tuple-element(w), index=2
  ROOT all = (f32[2], f32[2]) tuple(sum, got)
}}"""
    factors = {0: (0, 0), 1: (2**steps - 1, 2**steps)}
    return ChannelCase(
        f"peeled_{steps}_apart",
        ((range(2), text),),
        lambda d: [mine(d, 2)],
        lambda d: [mine(0, 2) * np.float32(factor) for factor in factors[d]],
        replicas=2,
    )


_NAMED = {case.name: case for case in SAME_IDS}
CASES = [
    *(
        _apart(_NAMED[name])
        for name in ("chain", "partitions", "pipelined_3_4_5", "counted_ring_4_50_1", "travelling_3")
    ),
    *(_apart(_NAMED[name], every=True) for name in ("streams", "order_3", "bounds")),
    _two_programs(),
    _peeled(3),
]
