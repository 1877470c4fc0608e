"""Devices of a run and the GPUs that Ray counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.errors import ArgumentError, ClusterError
from distxla.ops.custom_calls import user
from distxla.runtime.cluster import Cluster
from distxla.runtime.hosts.gpus import NO_GPUS, GpuSharing
from distxla.runtime.hosts.nodes import Node
from distxla.targets.local_rank import LocalRank

pytestmark = pytest.mark.cluster


def node(cpus: float, gpus: float) -> Node:
    return Node("id", "address", "there", cpus, gpus)


NODES = [node(8, 0), node(4, 1), node(2, 2)]


@pytest.mark.parametrize(
    ("sharing", "nodes", "expected"),
    [
        (NO_GPUS, NODES, [8, 4, 2]),
        (GpuSharing(used=True), NODES, [0, 4, 2]),
        (GpuSharing(used=True, per_gpu=3), NODES, [0, 3, 6]),
        (GpuSharing(used=True, per_gpu=3), NODES[:1], [8]),
    ],
)
def test_rooms(sharing: GpuSharing, nodes: list[Node], expected: list[float]) -> None:
    assert sharing.rooms(nodes) == expected


@pytest.mark.parametrize(
    ("sharing", "gpus", "devices", "expected"),
    [
        (NO_GPUS, 2, 8, 0.0),
        (GpuSharing(used=True), 0, 8, 0.0),
        (GpuSharing(used=True), 2, 8, 0.25),
        (GpuSharing(used=True), 8, 2, 1.0),
        (GpuSharing(used=True), 1, 3, 0.3333),
        (GpuSharing(used=True), 1, 6, 0.1666),
        (GpuSharing(used=True, per_gpu=2), 8, 3, 0.5),
    ],
)
def test_shares(sharing: GpuSharing, gpus: int, devices: int, expected: float) -> None:
    """As Ray counts, the devices of a GPU take no more than it is."""
    there = node(8, gpus)
    assert sharing.share(there, devices) == expected
    found = sharing.ranks(there, devices)
    if expected:
        assert found == [LocalRank(per_gpu=round(1 / expected), given=True)] * devices
        assert expected * round(1 / expected) <= 1
    else:
        assert found == [LocalRank(rank, devices, sharing.per_gpu) for rank in range(devices)]


def test_too_few_gpus_are_refused() -> None:
    with pytest.raises(ClusterError, match="there has 2 GPUs for 5 devices, and devices_per_gpu=2"):
        GpuSharing(used=True, per_gpu=2).share(node(8, 2), 5)


@pytest.mark.parametrize(
    ("count", "backend", "message"),
    [
        (2, "cpu", "devices_per_gpu=2 needs a backend that uses GPUs"),
        (0, "gpu", "expected a number of devices above 0, found 0"),
        ("2", "gpu", "expected a number of devices, found '2'"),
    ],
)
def test_bad_numbers_are_refused(monkeypatch: pytest.MonkeyPatch, count: Any, backend: str, message: str) -> None:
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated")
    with pytest.raises(ArgumentError, match=message):
        Cluster(2, backend=backend, devices_per_gpu=count)


SEEN = 'ENTRY main { x = s32[1] parameter(0)  ROOT seen = s32[1] custom-call(x), custom_call_target="seen" }'


def seen(_: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array([int(os.environ["CUDA_VISIBLE_DEVICES"])], np.int32)


@pytest.fixture
def registered() -> Iterator[None]:
    dx.register_custom_call("seen", seen)
    yield
    user.registered.clear()


SUM = """
HloModule sum, replica_count=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main { p = f32[300] parameter(0)  x = f32[300] add(p, p)  y = f32[300] all-reduce(x), to_apply=add
  ROOT r = f32[300] negate(y) }
"""


def exchanged(cluster: Cluster) -> bool:
    """Whether devices have exchanged arrays between GPUs' memories for a right sum."""
    step = cluster.compile(dx.parse(SUM))
    rows = [[np.full(300, k, np.float32)] for k in range(4)]
    assert [np.unique(np.asarray(got)).tolist() for (got,) in step(rows)] == [[-12.0]] * 4
    return all(site.on_device for site in step.program.sites)


@pytest.mark.slow
@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("counts", "expected"), [([4], True), ([2, 1, 1], False), ([0, 2, 2], False)])
def test_arrays_are_exchanged_between_gpus_of_one_host(
    address: str, monkeypatch: pytest.MonkeyPatch, counts: list[int], expected: bool
) -> None:
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated")
    with Cluster(4, address=address, backend="gpu", devices_per_host=counts) as opened:
        assert exchanged(opened) is expected


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_devices_go_where_gpus_are_and_use_those_that_ray_gives(
    ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is told that the node has GPUs; the emulator gives it some."""
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated:2")
    added = ray_cluster.add_node(num_cpus=1, num_gpus=2)
    try:
        ray_cluster.wait_for_nodes()
        with Cluster(4, address=ray_cluster.address, backend="gpu", devices_per_gpu=2) as opened:
            opened.wait_started()
            assert [len(devices) for devices in opened.hosts.devices] == [0, 4]
            step = opened.compile(dx.parse(SEEN))
            found = [int(np.asarray(row[0])[0]) for row in step([np.zeros(1, np.int32)])]
            assert sorted(found) == [0, 0, 1, 1]
            negate = opened.compile(dx.parse("ENTRY main { x = f32[3] parameter(0)  ROOT y = f32[3] negate(x) }"))
            assert [np.asarray(row[0]).tolist() for row in negate([np.arange(3.0, dtype=np.float32)])] == [
                [0, -1, -2]
            ] * 4
            assert exchanged(opened)
    finally:
        ray_cluster.remove_node(added)
