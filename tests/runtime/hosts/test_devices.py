"""Devices of one run on several Ray nodes: placement, calls, memory and communication."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.errors import ArgumentError, ClusterError
from distxla.runtime.cluster import Cluster
from distxla.runtime.hosts import nodes
from tests.runtime import hand_made

pytestmark = pytest.mark.cluster
COUNTS = (1, 2, 1)
DEVICES = sum(COUNTS)
X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[Cluster]:
    with Cluster(DEVICES, address=address, devices_per_host=COUNTS) as opened:
        opened.wait_started()
        yield opened


def test_each_host_has_the_devices_that_were_asked_for(cluster: Cluster) -> None:
    assert cluster.hosts.devices == [range(1), range(1, 3), range(3, 4)]
    assert [device for device, _, _ in cluster.replicas_info] == list(range(DEVICES))
    import ray

    where = ray.get([replica.node.remote() for replica in cluster.hosts.replicas])
    assert where[1] == where[2]
    assert len(set(where)) == 3
    assert where[0] == ray.get_runtime_context().get_node_id()


def test_calls_run_everywhere(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.add_one(DEVICES))
    outs = step([[X * d] for d in range(DEVICES)])
    for _ in range(20):
        outs = step(outs)
    for d in range(DEVICES):
        assert np.array_equal(np.asarray(outs[d][0]), X * d + 21)
    step([X], repeat=5)
    assert len(step.device_s) == DEVICES
    assert min(step.device_s) > 0


def test_programs_on_disjoint_devices(cluster: Cluster) -> None:
    double = dx.parse("ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }")
    negate = dx.parse("ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }")
    outs = cluster.run({(0, 2): double, (1, 3): negate}, {d: [X + d] for d in range(DEVICES)})
    for d in range(DEVICES):
        assert np.array_equal(np.asarray(outs[d][0]), -(X + d) if d % 2 else 2 * (X + d))
    outs = cluster.run({3: double}, {3: [X]})  # nothing runs on the driver's host
    assert np.array_equal(np.asarray(outs[3][0]), 2 * X)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (1 << 20,), (3, 5, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128, np.bool_], ids=lambda t: t.__name__)
def test_arrays_go_there_and_come_back(cluster: Cluster, shape: tuple[int, ...], dtype: Any) -> None:
    value = np.random.default_rng(3).integers(0, 2, shape).astype(dtype)
    for device in range(DEVICES):
        array = cluster.put(value, device)
        got = np.asarray(array)
        assert got.dtype == value.dtype
        assert np.array_equal(got, value)
        assert not (got.size and got.flags.writeable)
        assert array.shape == shape


def test_memory_is_used_again(cluster: Cluster) -> None:
    cluster.put(X, 1)
    used = cluster.heap.used
    value = np.zeros(1 << 22)
    for _ in range(10):
        cluster.put(value, 1)  # 32 MiB each: more than stay in place when they are idle, if none were used again
    assert cluster.heap.used <= used


def test_an_array_of_another_device_is_refused(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.add_one(DEVICES))
    array = cluster.put(X, 2)
    with pytest.raises(ArgumentError, match="expected an array on device 1, found one on device 2"):
        step([[X], [array], [X], [X]])
    assert np.array_equal(np.asarray(step([[X], [X], [array], [X]])[2][0]), X + 1)


def test_dynamic_dimensions(cluster: Cluster) -> None:
    text = "ENTRY e { x = f32[<=8] parameter(0) ROOT y = f32[<=8] add(x, x) }"
    outs = cluster.compile(dx.parse(text))([[np.arange(d + 2, dtype=np.float32)] for d in range(DEVICES)])
    for d in range(DEVICES):
        assert outs[d][0].shape == (d + 2,)
        assert np.array_equal(np.asarray(outs[d][0]), 2 * np.arange(d + 2, dtype=np.float32))


def test_custom_calls_run_on_every_host(cluster: Cluster) -> None:
    dx.register_custom_call("hosts.reverse", lambda x: x[::-1])
    try:
        step = cluster.compile(
            dx.parse(
                'ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] custom-call(x), custom_call_target="hosts.reverse" }'
            )
        )
        outs = step([[X + d] for d in range(DEVICES)])
        assert all(np.array_equal(np.asarray(outs[d][0]), (X + d)[::-1]) for d in range(DEVICES))
    finally:
        dx.unregister_custom_call("hosts.reverse")


def test_a_routine_that_fails_elsewhere_is_reported(cluster: Cluster) -> None:
    def fail(x: Any) -> Any:
        if x[0] == 3:
            raise ValueError("no threes")
        return x

    dx.register_custom_call("hosts.fail", fail)
    try:
        step = cluster.compile(
            dx.parse(
                'ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] custom-call(x), custom_call_target="hosts.fail" }'
            )
        )
        with pytest.raises(dx.ExecutionError, match=r'on device 3: "hosts\.fail" raised ValueError: no threes'):
            step([[X + d] for d in range(DEVICES)])
    finally:
        dx.unregister_custom_call("hosts.fail")
    assert np.array_equal(np.asarray(hand_made.adopted(cluster, hand_made.add_one(DEVICES))([X])[3][0]), X + 1)


def test_steps_need_no_ray(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    step = hand_made.adopted(cluster, hand_made.add_one(DEVICES))
    outs = step([X])
    gc.collect()
    assert cluster.loader is not None
    end = time.monotonic() + 20
    while len(cluster.loader.loaded) > 1 and time.monotonic() < end:  # other tests' programs go by calls of Ray
        time.sleep(0.01)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a step made a Ray call")

    for name in ("get", "wait", "put"):
        monkeypatch.setattr(f"ray.{name}", refuse)
    monkeypatch.setattr("ray.actor.ActorHandle._actor_method_call", refuse)
    for _ in range(20):
        outs = step(outs)
    assert np.array_equal(np.asarray(outs[3][0]), X + 21)


def test_the_drivers_host_may_have_no_device(address: str) -> None:
    with Cluster(2, address=address, devices_per_host=[0, 2]) as opened:
        outs = hand_made.adopted(opened, hand_made.add_one(2))([X])
        assert np.array_equal(np.asarray(outs[1][0]), X + 1)


# --- placement


def test_devices_go_where_cpus_are(address: str) -> None:
    """And views of the driver's host outlive a cluster, and others say so."""
    with Cluster(3, address=address) as opened:
        outs = hand_made.adopted(opened, hand_made.add_one(3))([X])
        assert opened.hosts.devices == [range(2), range(2, 3)]
        assert np.array_equal(np.asarray(outs[2][0]), X + 1)
    for row in outs[:2]:
        assert np.array_equal(np.asarray(row[0]), X + 1)
    with pytest.raises(ClusterError, match="the cluster is closed"):
        np.asarray(outs[2][0])


@pytest.mark.parametrize(
    ("devices", "cpus", "counts"),
    [
        (8, [8, 8], [8]),
        (8, [2], [8]),
        (8, [4, 4], [4, 4]),
        (8, [4, 2, 2, 2], [4, 2, 2]),
        (5, [2, 4], [2, 3]),
        (8, [2, 2], [4, 4]),
        (8, [1, 3], [2, 6]),
        (7, [2, 2], [4, 3]),
        (4, [0, 2, 2], [0, 2, 2]),
        (3, [0, 0], [3]),
        (3, [1, 0, 2], [1, 0, 2]),
    ],
)
def test_devices_are_distributed_over_nodes(devices: int, cpus: list[float], counts: list[int]) -> None:
    assert nodes.distribute(devices, cpus) == counts


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([], "expected a list of counts"),
        ("3,5", "expected a list of counts"),
        ([1.5, 6.5], "expected a list of counts"),
        ([-1, 9], "expected a list of counts"),
        ([3, 4], "are 7 devices, the cluster has 8"),
    ],
    ids=str,
)
def test_bad_counts_are_refused(wanted: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Cluster(8, devices_per_host=wanted)


def test_more_hosts_than_nodes_are_refused(address: str) -> None:
    with (
        pytest.raises(ClusterError, match="names 4 hosts, the Ray cluster has 3 living nodes"),
        Cluster(4, address=address, devices_per_host=[1, 1, 1, 1]) as opened,
    ):
        opened.wait_started()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "9"}, "host 1 has distxla 9, the driver"),
        ({"machine": "aarch64"}, "host 1 is aarch64, the driver"),
        ({"instructions": frozenset()}, "the CPU of host 1 lacks .*avx2"),
    ],
    ids=lambda c: next(iter(c)) if isinstance(c, dict) else "",
)
def test_nodes_that_cannot_run_the_programs_are_refused(change: dict[str, Any], message: str) -> None:
    import dataclasses

    mine = nodes.Facts.here("127.0.0.1")
    nodes.require_alike(mine, mine, "host 1")
    with pytest.raises(ClusterError, match=message):
        nodes.require_alike(mine, dataclasses.replace(mine, **change), "host 1")
