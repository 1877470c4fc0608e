"""Texts that tests/deadlock_programs.py makes programs of."""

from __future__ import annotations

MOST = """
most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}"""
WHOLE = """
whole {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b)
}"""
HALF = """h = f32[2] slice(p), slice={[0:2]}
d = f32[2] all-reduce(h), replica_groups={}, to_apply=sum
ROOT r = f32[4] concatenate(d, d), dimensions={0}"""
INTEGERS = """n = s32[4] convert(p)
d = s32[4] all-reduce(n), replica_groups={}, to_apply=whole
ROOT r = f32[4] convert(d)"""


def _two(text: str) -> list[str]:
    """What device 0 runs, and device 1: each sends on the channel on which the other one receives."""
    text = text.replace("CONTEXT", "(f32[4], u32[], token[])")
    return [text.replace("GIVEN", given).replace("TAKEN", taken) for given, taken in (("1", "2"), ("2", "1"))]


# asynchronous computations, one behind the other
WAITING = _two("""takes {
  t = token[] parameter(0)
  ROOT c = CONTEXT recv(t), channel_id=TAKEN
}
gives {
  x = f32[4] parameter(0)
  t = token[] parameter(1)
  ROOT s = CONTEXT send(x, t), channel_id=GIVEN
}
ENTRY main {
  x = f32[4] parameter(0)
  t = token[] after-all()
  b = ((token[]), CONTEXT, s32[]) async-start(t), calls=takes
  rd = CONTEXT async-done(b)
  g = ((f32[4], token[]), CONTEXT, s32[]) async-start(x, t), calls=gives
  sd = CONTEXT async-done(g)
  ROOT r = f32[4] get-tuple-element(rd), index=0
}
""")
# one that does both, and whose text waits before it sends
CROSSING = _two("""both {
  x = f32[4] parameter(0)
  t = token[] parameter(1)
  c = CONTEXT recv(t), channel_id=TAKEN
  rd = (f32[4], token[]) recv-done(c), channel_id=TAKEN
  v = f32[4] get-tuple-element(rd), index=0
  s = CONTEXT send(x, t), channel_id=GIVEN
  ROOT o = (f32[4], CONTEXT) tuple(v, s)
}
ENTRY main {
  x = f32[4] parameter(0)
  t = token[] after-all()
  b = ((f32[4], token[]), (f32[4], CONTEXT), s32[]) async-start(x, t), calls=both
  e = (f32[4], CONTEXT) async-done(b)
  ROOT r = f32[4] get-tuple-element(e), index=0
}
""")
