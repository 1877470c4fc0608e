"""Faults in real runs: results are right, or the error names the fault and its place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from tests.runtime.injection.programs import LOOP
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
X = np.arange(4, dtype=np.float32)
PLACE = "loop.hlo:10:3"
NOTICED_S = 10.0  # on a machine full of other work; `make chaos` has the bounds that are promised
FEED = """HloModule feed
ENTRY main {
  t = token[] after-all()
  a = (f32[4], token[]) infeed(t)
  ROOT v = f32[4] get-tuple-element(a), index=0
}
"""


def run(cluster: dx.Cluster, text: str = LOOP, args: Any = (X,), **options: Any) -> Any:
    return cluster.compile(dx.parse(text, "loop.hlo"))(list(args), **options)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[dx.Cluster]:
    with dx.Cluster(2, inject=request.param) as opened:
        opened.wait_started()
        yield opened


LATE = "slow:device=0,at=total,ms=5"  # so that device 1 has to wait
WAITS = [f"kill:device=1,at=total,round=3,when={when}" for when in ("before", "waiting", "after")]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("cluster", [[spec, LATE] for spec in WAITS], indirect=True, ids=["before", "waiting", "after"])
def test_a_killed_device_is_named_with_the_fault(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(LOOP, "loop.hlo"))
    watch = Stopwatch()
    with pytest.raises(dx.ReplicaLostError, match=r"device 1 .* this was injected: kill:device") as caught:
        step([X])
    assert watch.seconds < NOTICED_S
    error = caught.value
    assert str(error.location) == PLACE
    fault = cluster.injected[0]
    assert fault.happened
    assert error.diagnosis is not None
    assert error.diagnosis.injected == cluster.injected
    assert f"injected: {fault.spec} ({PLACE}): happened" in str(error)
    assert error.diagnosis.as_json()["injected"][0]["location"]["line"] == 10
    assert f"{fault.spec} ({PLACE}): happened" in error.diagnosis.page()


HARMLESS = [
    "delay:device=1,at=total,round=3,ms=200",
    "slow:device=0,ms=2",
    "stop:device=1,at=y,round=4,ms=300,when=after",
    "kill:device=0,at=total,round=50",
]


@pytest.mark.parametrize("cluster", [HARMLESS], indirect=True, ids=["all"])
def test_delays_change_no_result(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(LOOP, "loop.hlo"))
    watch = Stopwatch()
    first = step([X])
    assert watch.elapsed > 0.2 + 0.3
    for row in (*first, *step([X])):
        assert np.array_equal(np.asarray(row[0]), X)
    assert [fault.happened for fault in cluster.injected] == [True, True, True, False]
    assert cluster.compile(dx.parse(LOOP, "loop.hlo")).cached


@pytest.mark.parametrize("cluster", [["stop:device=1,at=total,round=3"]], indirect=True, ids=["stop"])
def test_a_stopped_device_is_in_the_report(cluster: dx.Cluster) -> None:
    with pytest.raises(dx.TimeLimitError, match=r"injected: stop:device=1,at=total,round=3 .* happened"):
        run(cluster, time_limit=3)


@pytest.mark.parametrize("cluster", [["feed-ends:device=1,after=2"]], indirect=True, ids=["feed"])
def test_a_feed_ends(cluster: dx.Cluster) -> None:
    for device in range(2):
        assert cluster.infeed(device).put_all([X + n for n in range(5)]) == 5
    step = cluster.compile(dx.parse(FEED, "feed.hlo"))
    for n in range(2):
        assert np.array_equal(np.asarray(step()[1][0]), X + n)
    assert cluster.infeed(1).pending == 0, "the others are lost"
    with pytest.raises(dx.StreamEndError, match=r"device 1 wants item 2: .* injected: feed-ends:device=1,after=2"):
        step()
    for device in range(2):
        cluster.infeed(device).put(X)
    step()  # it has ended once
    assert [fault.happened for fault in cluster.injected] == [True]


@pytest.mark.parametrize("cluster", [["random:seed=5,faults=4,kinds=delay"]], indirect=True, ids=["random"])
def test_a_random_run_says_how_to_replay_it(cluster: dx.Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "distxla"):
        outs = run(cluster)
    assert np.array_equal(np.asarray(outs[0][0]), X)
    said = [record.getMessage().partition("--inject ")[2] for record in caplog.records]
    assert said == [fault.spec for fault in cluster.injected]
    assert len(said) == 4
    assert all(fault.drawn_by == "random:seed=5,faults=4,kinds=delay" for fault in cluster.injected)


@pytest.mark.parametrize("cluster", [["kill:device=1,at=totl"]], indirect=True, ids=["unknown"])
def test_an_unknown_instruction_is_refused(cluster: dx.Cluster) -> None:
    with pytest.raises(dx.ArgumentError, match="loop has no instruction totl") as caught:
        run(cluster)
    assert caught.value.__notes__ == ["hint: did you mean total?"]
    assert caught.value.location is not None
    assert caught.value.location.column == len("kill:device=1,at=") + 1


def test_bad_faults_are_refused_at_once() -> None:
    with pytest.raises(dx.ArgumentError, match="device 2: the run has devices 0 to 1"):
        dx.Cluster(2, inject=["kill:device=2"])
