"""What test_outlined_calls.py shares with other tests."""

from __future__ import annotations

import pytest

from distxla.compiler.passes import inlining_budget
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture
from tests.large_texts import doubling_all_reduces, doubling_branches, doubling_calls

TUPLES = """HloModule tuples

swap {
  t = (f32[3], s32[2], f32[3]) parameter(0)
  x = f32[3] parameter(1)
  a = f32[3] get-tuple-element(t), index=0
  b = s32[2] get-tuple-element(t), index=1
  c = f32[3] get-tuple-element(t), index=2
  d = f32[3] multiply(a, x)
  e = s32[2] add(b, b)
  ROOT r = (f32[3], s32[2], f32[3]) tuple(c, e, d)
}

ENTRY main {
  p = f32[3] parameter(0)
  q = f32[3] parameter(1)
  i = s32[2] constant({1, 2})
  t = (f32[3], s32[2], f32[3]) tuple(p, i, q)
  one = (f32[3], s32[2], f32[3]) call(t, p), to_apply=swap
  two = (f32[3], s32[2], f32[3]) call(one, q), to_apply=swap
  c = f32[3] constant({1, 2, 3})
  ROOT three = (f32[3], s32[2], f32[3]) call(two, c), to_apply=swap
}
"""

# arrays that are large enough for states of loops to exchange their places
LOOPS = """HloModule loops

mix {
  x = f32[40,40] parameter(0)
  y = f32[40,40] transpose(x), dimensions={1,0}
  h = f32[] constant(0.5)
  s = f32[40,40] broadcast(h), dimensions={}
  z = f32[40,40] multiply(y, s)
  ROOT r = f32[40,40] add(x, z)
}

few {
  t = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}

step {
  t = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[40,40] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[40,40] call(x), to_apply=mix
  z = f32[40,40] transpose(y), dimensions={1,0}
  ROOT r = (s32[], f32[40,40]) tuple(j, z)
}

inside {
  x = f32[40,40] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[40,40]) tuple(zero, x)
  w = (s32[], f32[40,40]) while(t), condition=few, body=step
  ROOT r = f32[40,40] get-tuple-element(w), index=1
}

outer {
  t = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[40,40] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[40,40] call(x), to_apply=inside
  z = f32[40,40] call(y), to_apply=mix
  ROOT r = (s32[], f32[40,40]) tuple(j, z)
}

ENTRY main {
  x = f32[40,40] parameter(0)
  zero = s32[] constant(0)
  a = f32[40,40] call(x), to_apply=inside
  b = f32[40,40] call(x), to_apply=mix
  c = f32[40,40] subtract(a, b)
  t = (s32[], f32[40,40]) tuple(zero, c)
  w = (s32[], f32[40,40]) while(t), condition=few, body=outer
  d = f32[40,40] get-tuple-element(w), index=1
  e = f32[40,40] call(d), to_apply=inside
  ROOT r = (f32[40,40], f32[40,40], f32[40,40]) tuple(e, d, a)
}
"""

FUSIONS = """HloModule fusions

low {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}

body {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  s = (f32[8], f32[8]) sort(x, y), dimensions={0}, to_apply=low
  k = f32[8] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  m = f32[8] multiply(k, v)
  ROOT r = (f32[8], f32[8]) tuple(m, x)
}

ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  one = (f32[8], f32[8]) fusion(x, y), kind=kLoop, calls=body
  a = f32[8] get-tuple-element(one), index=0
  b = f32[8] get-tuple-element(one), index=1
  two = (f32[8], f32[8]) fusion(a, y), kind=kLoop, calls=body
  three = (f32[8], f32[8]) call(a, b), to_apply=body
  c = f32[8] get-tuple-element(two), index=0
  d = f32[8] get-tuple-element(three), index=1
  ROOT r = (f32[8], f32[8]) tuple(c, d)
}
"""

# text, replicas
ALIKE = """HloModule alike

called { p = f32[8] parameter(0)  a = f32[8] exponential(p)  ROOT r = f32[8] cosine(a) }

ENTRY main {
  p = f32[8] parameter(0)
  q = f32[8] sine(p)
  x = f32[8] call(q), to_apply=called
  y = f32[8] tanh(x)
  ROOT z = f32[8] call(y), to_apply=called
}
"""

PROGRAMS = {
    "kernels that differ in their computations only": (ALIKE, 1),
    "tuples": (TUPLES, 1),
    "loops": (LOOPS, 1),
    "fusions": (FUSIONS, 1),
    "doubling": (doubling_calls(6), 1),
    "branches": (doubling_branches(3), 1),
    "all-reduces": (doubling_all_reduces(4), 2),
}


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every computation that is called twice is outlined."""
    monkeypatch.setattr(inlining_budget, "COPIED", 1)
    monkeypatch.setattr(inlining_budget, "LEAST_OUTLINED", 1)
    monkeypatch.setattr(inlining_budget, "TIMES", 0)
    monkeypatch.setattr(inlining_budget, "MOST", 10_000)
