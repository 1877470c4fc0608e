"""Programs that run at once and meet in collectives: `Cluster.run` of several modules."""

from __future__ import annotations

import numpy as np
import pytest

import distxla as dx
from distxla.rewrites.rounds_in_order import RoundsInOrder

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
APART = f"""HloModule apart, replica_count=4
{ADD}ENTRY main {{
  x = f32[3] parameter(0)
  y = f32[3] multiply(x, x)
  s = f32[3] all-reduce(x), to_apply=add
  t = f32[3] all-reduce(y), to_apply=add
  ROOT r = (f32[3], f32[3]) tuple(s, t)
}}
"""
# the second round needs the first one
JOINED = APART.replace("apart", "joined").replace(
    "  t = f32[3] all-reduce(y)", "  z = f32[3] multiply(s, s)\n  t = f32[3] all-reduce(z)"
)
NONE = "HloModule none, replica_count=4\nENTRY main {\n  x = f32[3] parameter(0)\n  ROOT y = f32[3] negate(x)\n}\n"


def test_rounds_keep_the_order_of_the_text() -> None:
    apart, together = RoundsInOrder(apart=1), RoundsInOrder()
    ordered = apart.run(dx.parse(APART)).entry_computation
    assert ordered["t"].control_predecessors == ("s",)
    assert ordered["s"].control_predecessors == ()
    for step, text in ((apart, NONE), (together, APART)):
        module = dx.parse(text)
        assert step.run(module) is module


@pytest.mark.cluster
@pytest.mark.devices(replicas=4)
def test_independent_rounds_meet_dependent_ones(cluster: dx.Cluster) -> None:
    args = {d: [np.arange(3, dtype=np.float32) + d] for d in range(4)}
    outs = cluster.run({range(2): dx.parse(APART), range(2, 4): dx.parse(JOINED)}, args)
    first = sum(args[d][0] for d in range(4))
    second = args[0][0] ** 2 + args[1][0] ** 2 + 2 * first**2
    for device in range(4):
        np.testing.assert_array_equal(np.asarray(outs[device][0]), first)
        np.testing.assert_array_equal(np.asarray(outs[device][1]), second)
    with pytest.raises(dx.CollectiveMismatchError, match="which runs on 2, 3, has no collective of that group"):
        cluster.run({range(2): dx.parse(APART), range(2, 4): dx.parse(NONE)}, args)
    outs = cluster.run({range(4): dx.parse(NONE)}, args)
    np.testing.assert_array_equal(np.asarray(outs[3][0]), -args[3][0])
