"""Feeds and host transfers of devices that live on other Ray nodes than the driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import distxla as dx
from distxla.collectives.protocols.stream import AREA_BYTES, SLOTS
from tests.ops.feed_programs import CHANNELS, echo, sums
from tests.runtime.streams.streams_cases import MEET, Beside, item

pytestmark = pytest.mark.cluster
F32 = np.float32
X = np.zeros(4, F32)


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[dx.Cluster]:
    """Device 1 is on the other node."""
    with dx.Cluster(replicas=2, address=address, devices_per_host=[1, 1]) as opened:
        opened.wait_started()
        yield opened


def test_items_of_several_hosts_meet_in_a_collective(cluster: dx.Cluster) -> None:
    meet = cluster.compile(dx.parse(MEET))
    for round_ in range(20):
        for device in range(2):
            cluster.infeed(device).put(np.array([round_, device], F32))
        meet([], time_limit=30)
    for device in range(2):
        assert [found.tolist() for found in cluster.outfeed(device)] == [[2 * n, 1] for n in range(20)]


def test_items_flow_both_ways_while_a_program_runs(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(sums(300)), [1])
    putting = Beside(lambda: cluster.infeed(1).put_all(map(item, range(300))))
    taking = Beside(lambda: [cluster.outfeed(1).get()[0] for _ in range(300)])
    assert np.asarray(step([X], time_limit=60)[0][0])[0] == sum(range(300))
    assert putting.result() == 300
    assert taking.result() == np.cumsum(range(300)).tolist()


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("count", [3, 1 << 20, AREA_BYTES // 4 + 1000])
def test_items_of_every_size(cluster: dx.Cluster, count: int) -> None:
    step = cluster.compile(dx.parse(echo(f"(f32[{count}], bf16[3])")), [1])
    value = np.arange(count, dtype=F32)
    other = np.arange(3).astype(ml_dtypes.bfloat16)
    for _ in range(2):
        cluster.infeed(1).put((value, other))
        step([], time_limit=60)
        found = cluster.outfeed(1).get(5)
        assert np.array_equal(found[0], value)
        assert found[1].tobytes() == other.tobytes()


def test_the_end_of_a_stream_and_items_of_another_type(cluster: dx.Cluster) -> None:
    step, feed = cluster.compile(dx.parse(sums(3)), [1]), cluster.infeed(1)
    feed.put(item(1))
    running = Beside(lambda: step([X]))
    time.sleep(0.2)
    feed.close()
    assert isinstance(running.result(), dx.StreamEndError)
    assert "f on device 1 wants item" in running.result().message
    feed.put_all([item(1), np.int32(1), item(2), item(3), item(4)])
    with pytest.raises(dx.ArgumentError, match=r"of the infeed: expected f32\[4\], found s32\[\]"):
        step([X])
    assert np.asarray(step([X])[0][0])[0] == 9
    assert [found[0] for found in cluster.outfeed(1)] == [1, 1, 2, 5, 9]


@pytest.mark.exhaustive
def test_a_full_outfeed_makes_the_device_wait(cluster: dx.Cluster) -> None:
    count = SLOTS + 20
    step = cluster.compile(dx.parse(echo("s32[]")), [1])
    putting = Beside(lambda: cluster.infeed(1).put_all(map(np.int32, range(count))))
    running = Beside(lambda: step([], repeat=count))
    while cluster.outfeed(1).pending < SLOTS:
        time.sleep(0.05)
    assert running.is_running
    assert [int(cluster.outfeed(1).get()) for _ in range(count)] == list(range(count))
    assert not isinstance(running.result(), BaseException)
    assert putting.result() == count


def test_host_channels(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(CHANNELS), [1])
    cluster.host_channel(1, 3).put_all([np.array([n * n, 1], F32) for n in range(4)])
    for n in (0, 2):
        assert np.asarray(step([], time_limit=30)[0][0]).tolist() == [n * n, 1]
    assert [found.tolist() for found in cluster.host_channel(1, 0)] == [[-1, 0], [-5, 0]]


def test_a_lost_replica_ends_waiting_puts_and_gets(address: str) -> None:
    with dx.Cluster(replicas=2, address=address, devices_per_host=[1, 1]) as cluster:
        getting = Beside(lambda: cluster.outfeed(1).get())
        time.sleep(0.3)
        os.kill(cluster.replicas_info[1][2], signal.SIGKILL)
        assert isinstance(getting.result(), dx.ReplicaLostError)
        with pytest.raises(dx.ReplicaLostError):
            cluster.infeed(1).put(item(1))
