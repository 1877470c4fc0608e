"""Replicas that die, fail or never end, and calls that are interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.program.abi import Status
from distxla.runtime.cluster import Cluster
from distxla.testing import ClusterPool
from tests.interrupted import interrupted_after
from tests.runtime import hand_made
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
DEVICES = 3
X = np.arange(4, dtype=np.float32)

ALL_REDUCE = """HloModule sum
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{0,1,2}}, to_apply=add
}
"""


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[Cluster]:
    """For tests after which it can still be used."""
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


def later(seconds: float, action: object, *arguments: object) -> None:
    timer = threading.Timer(seconds, action, arguments)  # type: ignore[arg-type]
    timer.daemon = True
    timer.start()


def still_works(cluster: Cluster) -> bool:
    outs = hand_made.adopted(cluster, hand_made.add_one(DEVICES))([X])
    return all(np.array_equal(np.asarray(row[0]), X + 1) for row in outs)


def test_a_failing_program_releases_its_peers(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES, failing=2, status=Status.FAILED))
    with pytest.raises(dx.ExecutionError, match="hand-made failed on device 2 with status 3"):
        step()
    assert still_works(cluster)


def test_mismatch_has_its_own_error(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES, failing=1, status=Status.MISMATCH))
    with pytest.raises(dx.CollectiveMismatchError):
        step()
    assert still_works(cluster)


def test_time_limit_releases_waiters(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES))
    assert still_works(cluster)  # its start, which the first call waits for, is not what is bounded here
    watch = Stopwatch()
    with pytest.raises(dx.TimeLimitError, match=r"the time limit of 0\.3 s ran out\n  devices 0-2 compute"):
        step(time_limit=0.3)
    assert watch.seconds < 2
    assert still_works(cluster)


def run_without_the_last(cluster: Cluster, time_limit: float | None = None) -> None:
    """Two devices of a group wait for the third, which does something else and never comes."""
    last = hand_made.adopted(cluster, hand_made.waiting(DEVICES), [2])
    others = hand_made.adopted(cluster, cluster.compile(dx.parse(ALL_REDUCE, "sum.hlo")).program, range(2))
    cluster.run({range(2): others, 2: last}, {0: [X], 1: [X]}, time_limit=time_limit)


def test_a_collective_without_all_members_can_be_ended(cluster: Cluster) -> None:
    with pytest.raises(dx.TimeLimitError, match=r"devices 0, 1 wait in r") as caught:
        run_without_the_last(cluster, 0.5)
    assert "sum.hlo:" in str(caught.value)
    whole = cluster.compile(dx.parse(ALL_REDUCE))
    for _ in range(5):
        assert np.array_equal(np.asarray(whole([X])[2][0]), 3 * X)


def test_ctrl_c_ends_the_call_and_leaves_the_cluster_usable(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES))
    cluster.wait_started()
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(0.3, step)
    assert still_works(cluster)


def test_a_killed_replica_is_named_within_a_second() -> None:
    with Cluster(DEVICES) as cluster:
        step = hand_made.adopted(cluster, hand_made.waiting(DEVICES))
        pid = cluster.replicas_info[1][2]
        later(0.5, os.kill, pid, signal.SIGKILL)
        watch = Stopwatch()
        with pytest.raises(
            dx.ReplicaLostError, match=rf"the replica of device 1 \(process {pid}\) ended during a call"
        ):
            step()
        assert watch.seconds < 0.5 + 1.5
        with pytest.raises(dx.ReplicaLostError, match="cannot be used any more"):
            step()


def test_a_replica_that_is_killed_while_it_loads_is_named() -> None:
    with Cluster(2) as cluster:
        hand_made.adopted(cluster, hand_made.add_one(2))([X])
        pid = cluster.replicas_info[1][2]
        os.kill(pid, signal.SIGSTOP)  # so that it doesn't answer before
        later(0.5, os.kill, pid, signal.SIGKILL)
        said = rf"^lost: the replica of device 1 \(process {pid}\) has ended.*; the cluster cannot be used any more$"
        with pytest.raises(dx.ReplicaLostError, match=said):
            hand_made.adopted(cluster, hand_made.add_one(2))([X])


def test_a_killed_member_of_a_collective_releases_the_others() -> None:
    with Cluster(DEVICES) as cluster:
        cluster.compile(dx.parse(ALL_REDUCE, "sum.hlo"))  # the compiler starts now, not while the kill is awaited
        pid = cluster.replicas_info[0][2]
        later(0.5, os.kill, pid, signal.SIGKILL)
        with pytest.raises(dx.ReplicaLostError, match="device 0"):
            run_without_the_last(cluster)


def test_a_program_that_never_ends_is_killed_after_the_time_limit() -> None:
    with Cluster(2) as cluster:
        step = hand_made.adopted(cluster, hand_made.endless(2))
        cluster.wait_started()  # which is not what is bounded here
        watch = Stopwatch()
        with pytest.raises(dx.TimeLimitError):
            step(time_limit=0.2)
        assert watch.seconds < 8
        with pytest.raises(dx.ReplicaLostError):
            step()


def test_a_replica_lost_between_calls_is_noticed() -> None:
    with Cluster(2) as cluster:
        step = hand_made.adopted(cluster, hand_made.add_one(2))
        step([X])
        os.kill(cluster.replicas_info[0][2], signal.SIGKILL)
        time.sleep(0.3)
        with pytest.raises(dx.ReplicaLostError, match="device 0"):
            step([X])
