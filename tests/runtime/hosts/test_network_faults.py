"""Messages between hosts that are damaged, come twice or never: a typed error that names them, and no wrong result."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.cluster import Cluster
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster

LOOP = """HloModule loop
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
c { p = (s32[], f32[100000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  m = s32[] constant(6)
  ROOT l = pred[] compare(i, m), direction=LT }
b { p = (s32[], f32[100000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[100000] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[100000] all-reduce(v), replica_groups={{0,1}}, to_apply=add
  ROOT t = (s32[], f32[100000]) tuple(j, w) }
ENTRY e { x = f32[100000] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[100000]) tuple(z, x)
  l = (s32[], f32[100000]) while(t), condition=c, body=b
  ROOT y = f32[100000] get-tuple-element(l), index=1 }
"""
X = np.ones(100_000, np.float32)


def opened(address: str, *faults: str) -> Cluster:
    return Cluster(2, address=address, devices_per_host=[1, 1], inject=faults)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("drop", r"message \d+ of node 1 is missing before message \d+"),
        (
            "duplicate",
            r"message \d+ of node 1 came again after message \d+ \(\w+ of round 4 in w of devices 0, 1",
        ),
        ("corrupt", r"message \d+ of node 1 failed its check"),
    ],
)
def test_the_error_names_connection_and_message(address: str, kind: str, said: str) -> None:
    with opened(address, f"{kind}:from=1,round=4") as cluster:
        step = cluster.compile(dx.parse(LOOP))
        cluster.wait_started()
        watch = Stopwatch()
        with pytest.raises(dx.DamagedMessageError, match=said) as caught:
            step([X], time_limit=30)
        assert watch.seconds < 15  # far below the limit, on a machine full of other work
        assert "the connection from host 1 can't be trusted any more" in caught.value.message
        injected = [text for agent in cluster.hosts.agents for text in agent.injected.values()]
        assert len(injected) == 1
        assert " of round 4 in w of devices 0, 1, from host 1 to host 0, " in injected[0]
        assert re.search(r"\n  devices? [01].* w \(<string>:14:3\)", str(caught.value)), "what the devices did"
        with pytest.raises(dx.DamagedMessageError, match="cannot be used any more"):
            step([X])


@pytest.mark.exhaustive
def test_a_delay_changes_no_result(address: str) -> None:
    with opened(address, "late:from=0,round=3,ms=700") as cluster:
        step = cluster.compile(dx.parse(LOOP))
        watch = Stopwatch()
        outs = step([X], time_limit=30)
        assert watch.elapsed > 0.7
        for row in outs:
            assert np.array_equal(np.asarray(row[0]), 64 * X)


def test_a_damaged_answer_of_an_agent_is_no_result(address: str) -> None:
    """On the driver's own connection."""
    with Cluster(2, address=address, devices_per_host=[1, 1]) as cluster:
        step = cluster.compile(dx.parse(LOOP))
        outs = step([X])
        connection: Any = cluster.hosts.agents[1].connection
        opens = connection.opens.open
        connection.opens = _Flipping(opens)
        with pytest.raises(
            dx.DamagedMessageError, match=r"the connection from host 1 .* failed its check: bytes 0 to "
        ):
            np.asarray(outs[1][0])
        with pytest.raises(dx.DamagedMessageError, match="failed its check"):
            step([X])


class _Flipping:
    """A Protection that receives damaged bytes."""

    def __init__(self, opens: Any) -> None:
        self.opens = opens

    def open(self, frame: int, record: int, data: memoryview, tag: memoryview) -> bool:
        if record:
            data[0] ^= 1
        return bool(self.opens(frame, record, data, tag))
