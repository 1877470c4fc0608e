"""Whatever ends what devices wait for, all waits end at once, with the error that says why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest

import distxla as dx
from distxla.ops.custom_calls import user
from distxla.testing import ClusterPool
from tests.runtime.ends_of_waits import CAUSES, DEVICES, DIES, SECONDS, WAITS, X, broken, check, deadly, failure, module

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


@pytest.fixture(autouse=True)
def routines() -> Iterator[None]:
    dx.register_custom_call("broken", broken)
    dx.register_custom_call("deadly", deadly)
    yield
    user.registered.clear()


# every cause, with the waits by turns
ONE_OF_EACH = tuple(f"{cause}-{wait}" for cause, wait in zip(CAUSES, cycle(WAITS), strict=False))


@pytest.mark.sampled(one_in=2, first=ONE_OF_EACH)
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("cause", CAUSES)
def test_all_waits_end(cluster: dx.Cluster, cause: str, wait: str) -> None:
    check(cluster, 1, cause, wait)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("wait", WAITS)
def test_a_device_that_dies_ends_all_waits(wait: str) -> None:
    with dx.Cluster(replicas=DEVICES) as cluster:
        cluster.wait_started()
        body, kind = DIES
        step = cluster.compile(module(1, body, WAITS[wait]))
        error, seconds = failure(cluster, step, 1)
        assert type(error) is kind
        assert seconds < SECONDS
        assert "the replica of device 1" in str(error)
        assert error.diagnosis is not None
        with pytest.raises(dx.ReplicaLostError, match="cannot be used any more"):
            step([X])
