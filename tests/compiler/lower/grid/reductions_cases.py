"""What test_reductions.py shares with other tests."""

from __future__ import annotations

import re


def text(opcode: str, kind: str, initial: str, dims: tuple[int, ...], reduced: tuple[int, ...]) -> str:
    kept = [size for d, size in enumerate(dims) if d not in reduced]
    shapes = [f"{kind}[{','.join(map(str, sizes))}]" for sizes in (dims, kept)]
    numbers = ",".join(map(str, reduced))
    return f"""HloModule reduction
combine {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)  ROOT r = {kind}[] {opcode}(a, b) }}
ENTRY main {{
  x = {shapes[0]} parameter(0)
  start = {kind}[] constant({initial})
  ROOT r = {shapes[1]} reduce(x, start), dimensions={{{numbers}}}, to_apply=combine
}}
"""


# the last one is associative, but not commutative
ARGMAX = """HloModule argmax
pick {
  a = f32[] parameter(0)  i = s32[] parameter(1)
  b = f32[] parameter(2)  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  left = pred[] or(more, tie)
  v = f32[] select(left, a, b)
  k = s32[] select(left, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
last {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  none = s32[] constant(-1)
  is_none = pred[] compare(b, none), direction=EQ
  ROOT r = s32[] select(is_none, a, b)
}
ENTRY main {
  x = f32[DIMS] parameter(0)
  i = s32[DIMS] iota(), iota_dimension=ALONG
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  best = (f32[LINES], s32[LINES]) reduce(x, i, low, none), dimensions={ALONG}, to_apply=pick
  end = s32[LINES] reduce(i, none), dimensions={ALONG}, to_apply=last
  v = f32[LINES] get-tuple-element(best), index=0
  k = s32[LINES] get-tuple-element(best), index=1
  ROOT r = (f32[LINES], s32[LINES], s32[LINES]) tuple(v, k, end)
}
"""


def argmax_text(lines: int, count: int, along: int) -> str:
    dims = (lines, count) if along else (count, lines)
    replaced = {"DIMS": ",".join(map(str, dims)), "LINES": str(lines), "ALONG": str(along)}
    return re.sub("DIMS|LINES|ALONG", lambda found: replaced[found[0]], ARGMAX)
