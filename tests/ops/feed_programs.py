"""Programs with feeds and host transfers, as text."""

from __future__ import annotations


def echo(item: str) -> str:
    """Give back what comes in."""
    return f"""HloModule echo
ENTRY main {{
  t = token[] after-all()
  f = ({item}, token[]) infeed(t)
  v = {item} get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  ROOT o = token[] outfeed(v, u), outfeed_shape={item}
}}
"""


def sums(count: int, item: str = "f32[4]", header: str = "") -> str:
    """Add `count` items to the argument, one after the other, and give every sum away; the result is the last one."""
    return f"""HloModule sums{header}
body {{
  p = (s32[], {item}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  acc = {item} get-tuple-element(p), index=1
  t = token[] after-all()
  f = ({item}, token[]) infeed(t)
  x = {item} get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  s = {item} add(acc, x)
  o = token[] outfeed(s, u), outfeed_shape={item}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], {item}) tuple(j, s)
}}
again {{
  p = (s32[], {item}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({count})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  z = s32[] constant(0)
  a = {item} parameter(0)
  t = (s32[], {item}) tuple(z, a)
  w = (s32[], {item}) while(t), condition=again, body=body
  ROOT r = {item} get-tuple-element(w), index=1
}}
"""


TAKERS = """HloModule takers
inner {
  p = f32[2] parameter(0)
  t = token[] after-all()
  f = (f32[2], token[]) infeed(t)
  x = f32[2] get-tuple-element(f), index=0
  o = token[] outfeed(x, t), outfeed_shape=f32[2]
  ROOT q = f32[2] negate(p)
}
taken {
  p = f32[2] parameter(0)
  t = token[] after-all()
  f = (s32[], token[]) infeed(t)
  x = s32[] get-tuple-element(f), index=0
  o = token[] outfeed(x, t), outfeed_shape=s32[]
  ROOT q = f32[2] add(p, p)
}
other {
  p = f32[2] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(p, t), outfeed_shape=f32[2]
  ROOT q = f32[2] copy(p)
}
ENTRY main {
  a = f32[2] parameter(0)
  which = pred[] parameter(1)
  unused = f32[2] call(a), to_apply=inner
  c = f32[2] conditional(which, a, a), true_computation=taken, false_computation=other
  t = token[] after-all()
  first = ((u8[3], (pred[])), token[]) infeed(t)
  second = (bf16[], token[]) infeed(t)
  v = bf16[] get-tuple-element(second), index=0
  w = bf16[] add(v, v)
  o = token[] outfeed(w, t), outfeed_shape=bf16[]
  ROOT r = f32[2] copy(a)
}
"""
"""Feeds in a call, in branches, and in an order that only the text states; none of them reaches the root."""

CHANNELS = """HloModule channels
ENTRY main {
  t = token[] after-all()
  a = (f32[2], u32[], token[]) recv(t), channel_id=3, is_host_transfer=true
  b = (f32[2], u32[], token[]) recv(t), channel_id=3, is_host_transfer=true
  bd = (f32[2], token[]) recv-done(b), channel_id=3, is_host_transfer=true
  ad = (f32[2], token[]) recv-done(a), channel_id=3, is_host_transfer=true
  x = f32[2] get-tuple-element(ad), index=0
  y = f32[2] get-tuple-element(bd), index=0
  d = f32[2] subtract(x, y)
  s = (f32[2], u32[], token[]) send(d, t), is_host_transfer=true
  sd = token[] send-done(s), is_host_transfer=true
  ROOT r = (f32[2], f32[2]) tuple(x, y)
}
"""
"""Two receives whose ends stand in the other order, and a send without a channel's number."""

PIPELINE = """HloModule pipeline
body {
  p = (s32[], f32[2], (f32[2], u32[], token[])) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  acc = f32[2] get-tuple-element(p), index=1
  c = (f32[2], u32[], token[]) get-tuple-element(p), index=2
  d = (f32[2], token[]) recv-done(c), channel_id=1, is_host_transfer=true
  x = f32[2] get-tuple-element(d), index=0
  t = token[] get-tuple-element(d), index=1
  n = (f32[2], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true
  s = f32[2] add(acc, x)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[2], (f32[2], u32[], token[])) tuple(j, s, n)
}
again {
  p = (s32[], f32[2], (f32[2], u32[], token[])) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  t = token[] after-all()
  z = s32[] constant(0)
  a = f32[2] parameter(0)
  first = (f32[2], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true
  state = (s32[], f32[2], (f32[2], u32[], token[])) tuple(z, a, first)
  w = (s32[], f32[2], (f32[2], u32[], token[])) while(state), condition=again, body=body
  c = (f32[2], u32[], token[]) get-tuple-element(w), index=2
  d = (f32[2], token[]) recv-done(c), channel_id=1, is_host_transfer=true
  x = f32[2] get-tuple-element(d), index=0
  acc = f32[2] get-tuple-element(w), index=1
  ROOT r = (f32[2], f32[2]) tuple(acc, x)
}
"""
"""A receive that is in flight from one iteration to the next: 5 items."""
