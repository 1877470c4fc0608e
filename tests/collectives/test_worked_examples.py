"""Each collective in each group mode on numbers small enough to be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.collectives.executors import EXECUTORS, run_module
from tests.collectives.worked_examples_cases import CASES


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("what", CASES)
def test_worked_out_by_hand(what: str, executor: str) -> None:
    module, counts, given, expected = CASES[what]
    outs = run_module(executor, module, [[np.array(row, np.int64)] for row in given], *counts)
    assert [row[0].tolist() for row in outs] == expected


TORCH_XLA = """HloModule chained
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[1,2] parameter(0)
  token = f32[] parameter(1)
  sum = (f32[1,2], f32[]) all-reduce(x, token), replica_groups={}, constrain_layout=true, to_apply=add
  summed = f32[1,2] get-tuple-element(sum), index=0
  token.1 = f32[] get-tuple-element(sum), index=1
  rows = (f32[2,2], f32[]) all-gather(x, token.1), replica_groups={{1,0}}, dimensions={0}
  gathered = f32[2,2] get-tuple-element(rows), index=0
  token.2 = f32[] get-tuple-element(rows), index=1
  ROOT r = (f32[1,2], f32[2,2], f32[]) tuple(summed, gathered, token.2)
}
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_scalar_in_the_place_of_a_token(executor: str) -> None:
    given = [[np.array([row], np.float32), np.float32(token)] for row, token in (([1, 2], 0), ([5, 6], 3))]
    outs = run_module(executor, TORCH_XLA, given, 2, 1)
    for row in outs:
        assert [np.asarray(leaf).tolist() for leaf in row] == [[[6, 8]], [[5, 6], [1, 2]], 3]
