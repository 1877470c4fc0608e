"""`while`, `conditional`, `call`, `fusion` and the ops that only order: whole programs, compiled and evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single

LOOP = """HloModule loop
below { t = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(LIMIT)
  ROOT r = pred[] compare(i, n), direction=LT }
step { t = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[3] add(x, x)
  ROOT r = (s32[], f32[3]) tuple(j, y) }
ENTRY main { i = s32[] parameter(0)
  x = f32[3] parameter(1)
  t = (s32[], f32[3]) tuple(i, x)
  w = (s32[], f32[3]) while(t), condition=below, body=step
  ROOT r = f32[3] get-tuple-element(w), index=1 }
"""

BRANCHES = """HloModule branches
negated { x = f32[3] parameter(0)
  ROOT r = f32[3] negate(x) }
doubled { x = f32[3] parameter(0)
  ROOT r = f32[3] add(x, x) }
kept { ROOT x = f32[3] parameter(0) }
ENTRY main { s = SELECTOR[] parameter(0)
  x = f32[3] parameter(1)
  ROOT r = f32[3] conditional(s, VALUES), BRANCHES }
"""
BY_PREDICATE = (
    BRANCHES.replace("SELECTOR", "pred")
    .replace("VALUES", "x, x")
    .replace("BRANCHES }", "true_computation=negated, false_computation=doubled }")
)
BY_INDEX = (
    BRANCHES.replace("SELECTOR", "s32")
    .replace("VALUES", "x, x, x")
    .replace("BRANCHES }", "branch_computations={negated, doubled, kept} }")
)

CALLS = """HloModule calls
inner { x = f32[3] parameter(0)
  ROOT r = f32[3] multiply(x, x) }
outer { x = f32[3] parameter(0)
  y = f32[3] call(x), to_apply=inner
  ROOT r = f32[3] fusion(y), kind=kLoop, calls=inner }
ENTRY main { i = s32[] parameter(0)
  x = f32[3] parameter(1)
  y = f32[3] call(x), to_apply=outer
  t = (f32[3], s32[]) tuple(y, i)
  b = (f32[3], s32[]) opt-barrier(t)
  z = f32[3] get-tuple-element(b), index=0
  k = token[] after-all()
  l = token[] after-all(k, k)
  d = f32[3] add-dependency(z, l)
  ROOT r = f32[3] domain(d), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}} }
"""

X = np.array([1.0, -2.0, 3.0], np.float32)
CASES = [
    (LOOP.replace("LIMIT", "5"), np.int32(0), X * 32),
    (LOOP.replace("LIMIT", "0"), np.int32(0), X),
    (BY_PREDICATE, np.bool_(True), -X),
    (BY_PREDICATE, np.bool_(False), 2 * X),
    *((BY_INDEX, np.int32(i), want) for i, want in ((0, -X), (1, 2 * X), (2, X), (3, X), (-1, X))),
    (CALLS, np.int32(0), X**4),
]


@pytest.mark.parametrize(("text", "selector", "want"), CASES)
def test_runs_the_chosen_computations(text: str, selector: Any, want: Any) -> None:
    module = parse_module(text)
    verify_module(module)
    arguments = [np.asarray(selector), X]
    np.testing.assert_array_equal(run_reference(module, [arguments], Counts(1, 1))[0][0], want)
    compiled = run_single(compile_module(module, Counts(1, 1)), arguments)
    np.testing.assert_array_equal(compiled[0], want)
