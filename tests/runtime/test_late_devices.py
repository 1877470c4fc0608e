"""Devices that compute on while a call fails: nobody waits for them before the next call, and nobody kills them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.ops.custom_calls import user
from distxla.runtime.failures import stragglers
from distxla.testing import ClusterPool
from tests.deadlock_programs import by_device, reduce
from tests.runtime.ends_of_waits import SECONDS, X
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
BUSY_S = 5.0  # longer than what a device has that is ended by force
BEGUN_S = 0.5  # in which all devices begin: only devices that wait for others are in an error's diagnosis
PAIR, OTHER = "{{0,1},{2}}", "{{1,0},{2}}"
LATE = 'ROOT c = f32[4] custom-call(p), custom_call_target="busy"'
FAILING = {
    "a deadlock": (reduce("ROOT a", "p", PAIR), reduce("ROOT b", "p", OTHER), dx.DeadlockError),
    "an error": (
        f'v = f32[4] custom-call(p), custom_call_target="broken"\n{reduce("ROOT a", "v", PAIR)}',
        reduce("ROOT b", "p", PAIR),
        dx.ExecutionError,
    ),
}


def busy(x: Any) -> Any:
    time.sleep(BUSY_S)
    return x


def broken(x: Any) -> Any:
    time.sleep(BEGUN_S)
    raise ValueError("broken")


@pytest.fixture(autouse=True)
def routines() -> Iterator[None]:
    dx.register_custom_call("busy", busy)
    dx.register_custom_call("broken", broken)
    yield
    user.registered.clear()


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=3) as opened:
        yield opened


def fails(cluster: dx.Cluster, why: str) -> Stopwatch:
    """Devices 0 and 1 fail while device 2 computes; runs since then."""
    first, second, kind = FAILING[why]
    step = cluster.compile(dx.parse(by_device(first, second, LATE), "late.hlo"))
    assert cluster.loader is not None
    cluster.loader.load(step)
    watch = Stopwatch()
    with pytest.raises(kind) as caught:
        step([X], time_limit=30)
    assert watch.seconds < BEGUN_S + SECONDS
    assert caught.value.diagnosis is not None
    found = caught.value.diagnosis.of(2)
    assert found is not None
    assert found.doing == "computes"
    return watch


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("why", FAILING)
def test_the_next_call_waits_for_them(
    cluster: dx.Cluster, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stragglers, "NOTICE_S", 1.0)
    processes = [pid for _, _, pid in cluster.replicas_info]
    fine = cluster.compile(dx.parse(by_device(*[reduce("ROOT c", "p")] * 3), "fine.hlo"))
    fine([X])
    for _ in range(2):
        watch = fails(cluster, why)
        outs = fine([X])
        assert watch.elapsed >= BUSY_S
        assert all(np.array_equal(np.asarray(row[0]), 3 * X) for row in outs)
    assert [pid for _, _, pid in cluster.replicas_info] == processes
    notices = [line for line in caplog.messages if "a call that has failed" in line]
    assert 2 <= len(notices) <= 6
    assert all(line.startswith("distxla: device 2 still computes") for line in notices)


@pytest.mark.exhaustive
def test_a_cluster_may_be_closed_meanwhile() -> None:
    with dx.Cluster(replicas=3) as cluster:
        cluster.wait_started()
        fails(cluster, "a deadlock")


@pytest.mark.exhaustive
def test_a_time_limit_of_the_next_call_ends_them_by_force() -> None:
    with dx.Cluster(replicas=3) as cluster:
        cluster.wait_started()
        fine = cluster.compile(dx.parse(by_device(*[reduce("ROOT c", "p")] * 3), "fine.hlo"))
        fine([X])
        fails(cluster, "a deadlock")
        with pytest.raises(dx.TimeLimitError, match="before all devices of a call that had failed had come back"):
            fine([X], time_limit=0.2)
        with pytest.raises(dx.ReplicaLostError, match="replica of device 2"):
            fine([X])


@pytest.mark.exhaustive
def test_an_interrupt_of_the_next_call_ends_them_by_force() -> None:
    with dx.Cluster(replicas=3) as cluster:
        cluster.wait_started()
        fine = cluster.compile(dx.parse(by_device(*[reduce("ROOT c", "p")] * 3), "fine.hlo"))
        fine([X])
        fails(cluster, "a deadlock")
        assert cluster.loader is not None
        cluster.loader.dispatcher.stop_reason = lambda: dx.ClusterError("the call was interrupted")
        with pytest.raises(dx.ClusterError, match="the call was interrupted"):
            fine([X])
        with pytest.raises(dx.ReplicaLostError, match="replica of device 2"):
            fine([X])
