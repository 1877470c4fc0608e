"""The drivers' program: a loop with collectives of several kinds, whose results are the same bits in every run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DEVICES = 4
ITERATIONS = 50
WARM_UP = 20  # runs before the one in which something happens, besides the first
TEXT = f"""HloModule chaos, replica_count={DEVICES}
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }}
body {{ p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  summed = f32[8,8] all-reduce(x), replica_groups={{}}, to_apply=add
  quarter = f32[] constant(0.25)
  quarters = f32[8,8] broadcast(quarter), dimensions={{}}
  scaled = f32[8,8] multiply(summed, quarters)
  shifted = f32[8,8] collective-permute(scaled), source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
  squared = f32[8,8] dot(shifted, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  bounded = f32[8,8] tanh(squared)
  gathered = f32[32,8] all-gather(bounded), dimensions={{0}}, replica_groups={{}}
  second = f32[8,8] slice(gathered), slice={{[8:16], [0:8]}}
  spread = f32[8,8] reduce-scatter(gathered), dimensions={{0}}, replica_groups={{}}, to_apply=add
  mixed = f32[8,8] add(second, spread)
  y = f32[8,8] subtract(mixed, x)
  ROOT t = (s32[], f32[8,8]) tuple(j, y) }}
cond {{ p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({ITERATIONS})
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY main {{
  v = f32[8,8] parameter(0)
  z = s32[] constant(0)
  w0 = (s32[], f32[8,8]) tuple(z, v)
  loop = (s32[], f32[8,8]) while(w0), condition=cond, body=body
  ROOT r = f32[8,8] get-tuple-element(loop), index=1
}}
"""
SITES = ("summed", "shifted", "gathered", "spread")
INSTRUCTIONS = (*SITES, "scaled", "squared", "bounded", "mixed", "y", "loop", "c", "j")


def arguments() -> list[list[NDArray[np.float32]]]:
    """Of each device."""
    rows = np.random.default_rng(1).uniform(-1, 1, (DEVICES, 8, 8)).astype(np.float32)
    return [[row] for row in rows]
