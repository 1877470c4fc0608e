"""Devices of one program that take other ways: branches whose collectives meet, loops of other lengths."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module
from tests.collectives.executors import EXECUTORS, run_module
from tests.collectives.matrix_executors import DelayedDevices

ADD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
"""

MEETING = f"""HloModule meeting
{ADD}
independent {{ p = (f32[4], f32[4]) parameter(0)
  x = f32[4] get-tuple-element(p), index=0
  y = f32[4] get-tuple-element(p), index=1
  a = f32[4] all-reduce(x), to_apply=add, replica_groups={{}}
  b = f32[4] all-reduce(y), to_apply=add, replica_groups={{}}
  ROOT r = (f32[4], f32[4]) tuple(a, b) }}
dependent {{ q = (f32[4], f32[4]) parameter(0)
  z = f32[4] get-tuple-element(q), index=0
  c = f32[4] all-reduce(z), to_apply=add, replica_groups={{}}
  d = f32[4] all-reduce(c), to_apply=add, replica_groups={{}}
  ROOT s = (f32[4], f32[4]) tuple(c, d) }}
ENTRY main {{
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  t = (f32[4], f32[4]) tuple(x, y)
  id = u32[] replica-id()
  one = u32[] constant(1)
  low = pred[] compare(id, one), direction=LT
  ROOT r = (f32[4], f32[4]) conditional(low, t, t), true_computation=independent, false_computation=dependent
}}
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_rounds_of_two_branches_meet_in_the_order_of_their_text(executor: str) -> None:
    """Although the rounds of one of them could be merged, and those of the other one could not."""
    given = [[np.full(4, d + 1, np.float32), np.full(4, 10 * (d + 1), np.float32)] for d in range(3)]
    outs = run_module(executor, MEETING, given, 3)
    for row in outs:
        assert row[0].tolist() == [6.0] * 4
        assert row[1].tolist() == [10.0 + 6.0 + 6.0] * 4


N = 50_000
APART = f"""HloModule apart
plain {{ x = f32[{N}] parameter(0)
  g = f32[{2 * N}] all-gather(x), replica_groups={{{{0,1}}}}, dimensions={{0}}
  ROOT r = f32[{2 * N}] negate(g) }}
changed {{ x = f32[{N}] parameter(0)
  g = f32[{2 * N}] all-gather(x), replica_groups={{{{0,1}}}}, dimensions={{0}}
  i = s32[] constant(3)
  u = f32[4] slice(x), slice={{[0:4]}}
  h = f32[{2 * N}] dynamic-update-slice(g, u, i)
  ROOT r = f32[{2 * N}] negate(h) }}
ENTRY main {{
  x = f32[{N}] parameter(0)
  id = u32[] replica-id()
  which = s32[] convert(id)
  ROOT r = f32[{2 * N}] conditional(which, x, x), branch_computations={{plain, changed}}
}}
"""


def test_members_share_work_although_only_one_would_share_the_result() -> None:
    """The other one overwrites it. Both find the same items, for a size that is shared work only without sharing."""
    program = compile_module(parse_module(APART), Counts(2, 1))
    assert [site.shares for site in program.sites] == [True, False]
    for seed in range(10):
        devices = DelayedDevices(program, seed, 0.003)
        given = [np.random.default_rng(seed + d).standard_normal(N).astype(np.float32) for d in range(2)]
        want = [-np.concatenate(given) for _ in range(2)]
        want[1][3:7] = -given[1][:4]
        for found, expected in zip(devices([[row] for row in given]), want, strict=True):
            np.testing.assert_array_equal(found[0], expected)
        devices.close()


LOOPS = f"""HloModule loops
{ADD}
inner {{ a = f32[2] parameter(0)
  ROOT r = f32[2] all-reduce(a), to_apply=add, replica_groups={{{{0,1}},{{2,3}}}} }}
same {{ ROOT a = f32[2] parameter(0) }}
step {{ s = (s32[], s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  x = f32[2] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[2] call(x), to_apply=inner
  zero = s32[] constant(0)
  odd = s32[] and(i, one)
  even = pred[] compare(odd, zero), direction=EQ
  y = f32[2] conditional(even, c, c), true_computation=inner, false_computation=same
  ROOT r = (s32[], s32[], f32[2]) tuple(j, n, y) }}
test {{ s = (s32[], s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT r = pred[] compare(i, n), direction=LT }}
ENTRY main {{
  x = f32[2] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], s32[], f32[2]) tuple(zero, n, x)
  w = (s32[], s32[], f32[2]) while(s), condition=test, body=step
  y = f32[2] get-tuple-element(w), index=2
  ROOT all = f32[2] all-reduce(y), to_apply=add, replica_groups={{}}
}}
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_groups_go_round_a_loop_as_often_as_they_like(executor: str) -> None:
    """And take a collective in a branch every other time; then all meet."""
    rounds = [3, 3, 5, 5]
    given = [[np.array([d, 1.0], np.float32), np.int32(rounds[d])] for d in range(4)]
    outs = run_module(executor, LOOPS, given, 4)
    pairs = [given[0][0] + given[1][0], given[2][0] + given[3][0]]
    total = 2 * pairs[0] * 2.0 ** (3 + 2 - 1) + 2 * pairs[1] * 2.0 ** (5 + 3 - 1)
    for row in outs:
        assert row[0].tolist() == total.tolist()
