"""Infeeds, outfeeds and host channels of a cluster: waiting, backpressure, ends, errors, what is left afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.collectives.protocols.stream import AREA_BYTES, SLOTS
from tests.interrupted import interrupted_after
from tests.ops.feed_programs import CHANNELS, echo, sums
from tests.runtime.streams.streams_cases import F32, MEET, Beside, item

pytestmark = pytest.mark.cluster
X = np.zeros(4, F32)
MIB = 1 << 20

ENDLESS = sums(1_000_000_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(replicas=2) as opened:
        opened.wait_started()
        yield opened


@pytest.fixture(autouse=True)
def streams_are_empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of the shared cluster takes out what it has put in."""
    yield
    if "cluster" in request.fixturenames:
        cluster: dx.Cluster = request.getfixturevalue("cluster")
        assert [cluster.infeed(d).pending for d in range(2)] == [0, 0]
        assert [cluster.outfeed(d).pending for d in range(2)] == [0, 0]


@pytest.fixture(scope="module")
def three(cluster: dx.Cluster) -> dx.Executable:
    """Takes three items on device 0."""
    return cluster.compile(dx.parse(sums(3)), [0])


def test_items_may_be_put_before_and_while_a_program_runs(cluster: dx.Cluster, three: dx.Executable) -> None:
    feed = cluster.infeed(0)
    feed.put(item(1))
    assert feed.pending == 1
    running = Beside(lambda: three([X]))
    assert cluster.outfeed(0).get()[0] == 1
    with pytest.raises(dx.TimeLimitError, match=r"outfeed of device 0 had no item within 0.1 s"):
        cluster.outfeed(0).get(timeout=0.1)
    assert running.is_running
    assert feed.put_all(iter([item(2), item(3)])) == 2
    assert np.asarray(running.result()[0][0])[0] == 6
    assert [found[0] for found in cluster.outfeed(0)] == [3, 6]


def test_each_device_has_its_own_streams(cluster: dx.Cluster) -> None:
    meet = cluster.compile(dx.parse(MEET))
    for round_ in range(20):
        for device in range(2):
            cluster.infeed(device).put(np.array([round_, device], F32))
        meet([])
    found = [list(cluster.outfeed(device)) for device in range(2)]
    assert [f.tolist() for f in found[0]] == [f.tolist() for f in found[1]] == [[2 * n, 1] for n in range(20)]


def test_streams_outlive_calls(cluster: dx.Cluster, three: dx.Executable) -> None:
    cluster.infeed(0).put_all(map(item, range(6)))
    three([X])
    assert cluster.infeed(0).pending == 3
    assert cluster.outfeed(0).pending == 3
    three([X], repeat=1)
    assert [found[0] for found in cluster.outfeed(0)] == [0, 1, 3, 3, 7, 12]
    cluster.infeed(0).put_all(map(item, range(6)))
    three([X], repeat=2)
    assert len(list(cluster.outfeed(0))) == 6


def test_the_end_of_a_stream_loses_nothing(cluster: dx.Cluster, three: dx.Executable) -> None:
    feed = cluster.infeed(0)
    feed.put_all(map(item, range(2)))
    before = feed.posted
    feed.close()
    with pytest.raises(dx.StreamEndError, match=rf"closed after {before} items"):
        feed.put(item(9))
    with pytest.raises(dx.StreamEndError) as caught:
        three([X])
    assert f"f on device 0 wants item {before}: the infeed was closed after {before} items" in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == 7
    assert caught.value.exit_status == 1
    with pytest.raises(dx.StreamEndError):  # it stays closed until somebody puts an item
        three([X])
    assert [found[0] for found in cluster.outfeed(0)] == [0, 1]
    feed.put_all(map(item, range(3)))
    assert np.asarray(three([X])[0][0])[0] == 3
    assert len(list(cluster.outfeed(0))) == 3


def test_the_end_of_one_stream_releases_the_others(cluster: dx.Cluster) -> None:
    meet = cluster.compile(dx.parse(MEET))
    cluster.infeed(0).put(np.ones(2, F32))
    running = Beside(lambda: meet([]))
    waiting = Beside(lambda: cluster.outfeed(0).get())
    time.sleep(0.1)
    cluster.infeed(1).close()
    assert isinstance(running.result(), dx.StreamEndError)
    assert "device 1" in running.result().message
    assert isinstance(waiting.result(), dx.ExecutionError)
    assert "outfeed of device 0: the call that ran on the device has failed: f on device 1" in str(waiting.result())
    for device in range(2):
        cluster.infeed(device).put(np.ones(2, F32))
    meet([])
    assert [cluster.outfeed(device).get(1).tolist() for device in range(2)] == [[2, 2], [2, 2]]


def test_several_streams_may_end_at_once(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(echo("s32[]")))
    for device in range(2):
        cluster.infeed(device).close()
    with pytest.raises(dx.StreamEndError) as caught:
        step([])
    assert sum(f"device {device}" in caught.value.message for device in range(2)) == 1
    for device in range(2):  # the other one's end was met, too, or is still to be met
        if any(f"device {device}" in text for text in [caught.value.message, *getattr(caught.value, "__notes__", [])]):
            cluster.infeed(device).put(np.int32(1))
        else:
            with pytest.raises(dx.StreamEndError):
                cluster.infeed(device).put(np.int32(1))
            with pytest.raises(dx.StreamEndError, match=f"device {device}"):
                cluster.compile(dx.parse(echo("s32[]")), [device])([])
            cluster.infeed(device).put(np.int32(1))
    step([])
    assert [int(cluster.outfeed(device).get(1)) for device in range(2)] == [1, 1]


def test_an_item_of_another_type_is_refused_alone(cluster: dx.Cluster, three: dx.Executable) -> None:
    feed = cluster.infeed(0)
    feed.put_all([item(1), (np.zeros((2, 2), np.float64), np.int8(1)), item(2), item(3), item(4)])
    number = feed.posted - 4
    with pytest.raises(dx.ArgumentError) as caught:
        three([X])
    wanted = f"item {number} of the infeed: expected f32[4], found (f64[2,2], s8[])"
    assert f"f on device 0: {wanted}" in caught.value.message
    assert caught.value.location is not None
    assert [found[0] for found in cluster.outfeed(0)] == [1]
    assert np.asarray(three([X])[0][0])[0] == 9
    assert len(list(cluster.outfeed(0))) == 3


@pytest.mark.parametrize("value", ["text", None, {"a": 1}, [1, "b"], np.array(["x"])])
def test_what_is_no_item_is_refused_when_it_is_put(cluster: dx.Cluster, value: Any) -> None:
    with pytest.raises(dx.ArgumentError, match="an item is made of arrays and tuples"):
        cluster.infeed(0).put(value)


@pytest.mark.parametrize("device", [2, -1, "0"])
def test_a_device_that_does_not_exist_has_no_streams(cluster: dx.Cluster, device: Any) -> None:
    for streams in (cluster.infeed, cluster.outfeed):
        with pytest.raises(dx.ArgumentError, match="the cluster has devices 0 to 1"):
            streams(device)
    with pytest.raises(dx.ArgumentError, match="the cluster has devices 0 to 1"):
        cluster.host_channel(device, 1)


def test_arrays_on_devices_may_be_put(cluster: dx.Cluster, three: dx.Executable) -> None:
    cluster.infeed(0).put_all(cluster.put(item(n), 1) for n in range(3))
    assert np.asarray(three([X])[0][0])[0] == 3
    assert len(list(cluster.outfeed(0))) == 3


def test_a_full_infeed_makes_the_host_wait(cluster: dx.Cluster) -> None:
    large = np.zeros(MIB // 4, F32)
    shape = f"f32[{large.size}]"
    feed, count = cluster.infeed(0), AREA_BYTES // MIB
    used = cluster.heap.used
    assert feed.put_all([large] * count) == count
    with pytest.raises(dx.TimeLimitError, match=r"infeed of device 0 had no room for item \d+ within 0.2 s: 32 wait"):
        feed.put(large, timeout=0.2)
    assert cluster.heap.used <= used
    filling = Beside(lambda: feed.put_all([large] * 8))
    time.sleep(0.1)
    assert filling.is_running
    step = cluster.compile(
        dx.parse(
            sums(count + 8, shape)
            .replace("  o = token[] outfeed(s, u)", "  o = token[] after-all(u)")
            .replace(f", outfeed_shape={shape}", "")
        ),
        [0],
    )
    step([large])
    assert filling.result() == 8


def test_a_full_outfeed_makes_the_device_wait(cluster: dx.Cluster) -> None:
    size, room = MIB // 4, AREA_BYTES // MIB
    count = room + 8
    step = cluster.compile(dx.parse(sums(count, f"f32[{size}]")), [0])
    ones = np.ones(size, F32)
    feeding = Beside(lambda: cluster.infeed(0).put_all([ones] * count))
    with pytest.raises(dx.TimeLimitError, match=r"device 0 waits in o .* for the host, at the other end of the stream"):
        step([ones], time_limit=3)
    assert feeding.result() == count
    outfeed = cluster.outfeed(0)
    assert outfeed.pending == room
    assert [outfeed.get()[-1] for _ in range(room)] == list(range(2, room + 2))
    left = cluster.infeed(0).pending
    assert left == count - room - 1  # one was taken whose sum found no room
    cluster.compile(dx.parse(echo(f"f32[{size}]")), [0])([], repeat=left)
    assert len(list(outfeed)) == left


@pytest.mark.exhaustive
def test_slow_consumers_lose_nothing(cluster: dx.Cluster) -> None:
    count = 3 * SLOTS
    step = cluster.compile(dx.parse(sums(count)), [0])

    def feed() -> None:
        for n in range(count):
            cluster.infeed(0).put(item(n % 5))
            if n % 3000 == 0:
                time.sleep(0.05)

    def take() -> list[float]:
        found = []
        for n in range(count):
            found.append(cluster.outfeed(0).get()[0])
            if n % 2500 == 7:
                time.sleep(0.1)
        return found

    feeding, taking = Beside(feed), Beside(take)
    step([X])
    assert feeding.result() is None
    assert taking.result() == np.cumsum([n % 5 for n in range(count)]).tolist()


def test_items_may_be_larger_than_the_area(cluster: dx.Cluster) -> None:
    count = AREA_BYTES // 4 + 1000
    step = cluster.compile(dx.parse(echo(f"f32[{count}]")), [0])
    used, values = [], [np.arange(count, dtype=F32) + n for n in range(3)]
    for value in values:
        cluster.infeed(0).put(value)
        step([])
        assert np.array_equal(cluster.outfeed(0).get(), value)
        used.append(cluster.heap.used)
    assert used[1] >= used[2]
    cluster.infeed(0).put_all(values[:2])
    with pytest.raises(dx.TimeLimitError):
        cluster.infeed(0).put(values[2], timeout=0.1)
    step([])
    step([])
    assert all(np.array_equal(found, value) for found, value in zip(cluster.outfeed(0), values))


def test_items_in_an_area_that_moves_are_kept(cluster: dx.Cluster) -> None:
    small = cluster.compile(dx.parse(echo("s8[3]")), [1])
    cluster.infeed(1).put_all([np.full(3, n, np.int8) for n in range(3)])
    small([], repeat=3)
    large = cluster.compile(dx.parse(echo(f"u8[{AREA_BYTES - 64}]")), [1])
    value = np.arange(AREA_BYTES - 64, dtype=np.uint32).astype(np.uint8)
    cluster.infeed(1).put(value)
    large([])
    *first, last = cluster.outfeed(1)
    assert [f[0] for f in first] == [0, 1, 2]
    assert np.array_equal(last, value)


def test_many_threads_may_put_and_get(cluster: dx.Cluster) -> None:
    each, threads = 200, 4
    step = cluster.compile(dx.parse(echo("s32[]")), [0])
    putting = [
        Beside(lambda t=t: cluster.infeed(0).put_all(np.int32(t * each + n) for n in range(each)))  # type: ignore[misc]
        for t in range(threads)
    ]
    taking = [Beside(lambda: [int(cluster.outfeed(0).get()) for _ in range(each)]) for _ in range(threads)]
    step([], repeat=each * threads)
    assert [p.result() for p in putting] == [each] * threads
    found = [n for t in taking for n in t.result()]
    assert sorted(found) == list(range(each * threads))
    for t in range(threads):  # one thread's items keep their order
        mine = set(range(t * each, (t + 1) * each))
        for part in taking:
            numbers = [n for n in part.result() if n in mine]
            assert numbers == sorted(numbers)


def test_host_channels_go_both_ways(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(CHANNELS))
    for device in range(2):
        cluster.host_channel(device, 3).put_all([np.array([n * n, device], F32) for n in range(4)])
    for n in (0, 2):
        outs = step([])
        assert np.asarray(outs[1][0]).tolist() == [n * n, 1]
    assert [found.tolist() for found in cluster.host_channel(0, 0)] == [[-1, 0], [-5, 0]]
    assert [cluster.host_channel(1, 0).get(1).tolist() for _ in range(2)] == [[-1, 0], [-5, 0]]
    with pytest.raises(dx.TimeLimitError, match="send on channel 0 of device 1 had no item"):
        cluster.host_channel(1, 0).get(0)


def test_what_was_asked_for_and_not_taken_goes_to_the_next_call(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(CHANNELS), [0])
    channel = cluster.host_channel(0, 3)
    channel.put(np.array([1, 1], F32))
    with pytest.raises(dx.TimeLimitError, match=r"device 0 waits in bd .* for the host"):
        step([], time_limit=0.3)
    channel.put(np.array([2, 2], F32))
    channel.put(np.array([3, 3], F32))
    outs = step([])
    assert [np.asarray(out)[0] for out in outs[0]] == [1, 2]
    channel.close()
    with pytest.raises(dx.StreamEndError, match=r"bd on device 0 wants item \d+: the recv on channel 3 was closed"):
        step([])
    channel.put(np.array([4, 4], F32))
    outs = step([])
    assert [np.asarray(out)[0] for out in outs[0]] == [3, 4]
    assert [found.tolist() for found in cluster.host_channel(0, 0)] == [[-1, -1], [-1, -1]]


def test_an_interrupt_ends_a_waiting_put_and_a_waiting_get(cluster: dx.Cluster, three: dx.Executable) -> None:
    feed = cluster.infeed(0)
    with pytest.raises(dx.TimeLimitError):
        feed.put_all((item(0) for _ in range(SLOTS + 1)), timeout=0.05)
    assert feed.pending == SLOTS
    for wait in (lambda: feed.put(item(1)), lambda: cluster.outfeed(0).get()):
        with pytest.raises(KeyboardInterrupt):
            interrupted_after(0.2, wait)
    assert feed.pending == SLOTS
    step = cluster.compile(dx.parse(echo("f32[4]")), [0])
    taking = Beside(lambda: [cluster.outfeed(0).get() for _ in range(SLOTS)])
    step([], repeat=SLOTS)
    assert len(taking.result()) == SLOTS


def test_items_leave_no_memory_behind(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(echo("(f32[1000], s8[7])")))
    value = (np.zeros(1000, F32), np.zeros(7, np.int8))

    def round_() -> None:
        for device in range(2):
            cluster.infeed(device).put(value)
        step([])
        for device in range(2):
            cluster.outfeed(device).get()

    round_()
    control = cluster.hosts.local.control
    used, top = cluster.heap.used, control.used
    for _ in range(300):
        round_()
    # less is right, too: an executable of another test may have been collected, and its program unloaded
    assert cluster.heap.used <= used
    assert control.used <= top


def test_a_lost_replica_ends_waiting_puts_and_gets() -> None:
    with dx.Cluster() as cluster:
        feed, outfeed = cluster.infeed(0), cluster.outfeed(0)
        step = cluster.compile(dx.parse(sums(2 * SLOTS)))
        putting = Beside(lambda: feed.put_all(map(item, range(10 * SLOTS))))
        running = Beside(lambda: step([X]))
        while outfeed.pending < SLOTS:
            time.sleep(0.01)
        os.kill(cluster.replicas_info[0][2], signal.SIGKILL)
        assert isinstance(running.result(), dx.ReplicaLostError)
        assert isinstance(putting.result(), dx.ReplicaLostError | dx.ExecutionError)
        with pytest.raises(dx.ReplicaLostError):
            feed.put(item(0))
        assert len([outfeed.get() for _ in range(SLOTS)]) == SLOTS  # what was produced can be had
        with pytest.raises(dx.ReplicaLostError):
            outfeed.get()


def test_closing_the_cluster_ends_waiting_puts_and_gets() -> None:
    with dx.Cluster() as cluster:
        feed, outfeed = cluster.infeed(0), cluster.outfeed(0)
        putting = Beside(lambda: feed.put_all(map(item, range(SLOTS + 1))))
        taking = Beside(outfeed.get)
        time.sleep(0.3)
        assert putting.is_running
        assert taking.is_running
    for waiting in (putting, taking):
        assert isinstance(waiting.result(), dx.ClusterError)
        assert "the cluster is closed" in str(waiting.result())
    for use in (lambda: feed.put(item(1)), outfeed.get, lambda: cluster.infeed(0)):
        with pytest.raises(dx.ClusterError, match="closed"):
            use()
