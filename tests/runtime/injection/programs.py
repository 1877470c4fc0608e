"""A loop of all-reduces, for faults at its rounds."""

from __future__ import annotations

LOOP = """HloModule loop
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
body { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  total = f32[4] all-reduce(x), replica_groups={}, to_apply=add
  half = f32[] constant(0.5)
  halves = f32[4] broadcast(half), dimensions={}
  y = f32[4] multiply(total, halves)
  ROOT t = (s32[], f32[4]) tuple(j, y) }
cond { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main {
  v = f32[4] parameter(0)
  z = s32[] constant(0)
  w0 = (s32[], f32[4]) tuple(z, v)
  w = (s32[], f32[4]) while(w0), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""
