"""Channels between real replicas: one program, several programs, calls that follow one another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distxla.runtime.cluster import Cluster
from tests.channel_programs import CASES, ChannelCase


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[tuple[int, int], Cluster]]:
    found: dict[tuple[int, int], Cluster] = {}
    yield found
    for cluster in found.values():
        cluster.close()


def cluster_for(clusters: dict[tuple[int, int], Cluster], case: ChannelCase) -> Cluster:
    counts = (case.replicas, case.partitions)
    if counts not in clusters:
        clusters[counts] = Cluster(*counts).start()
    return clusters[counts]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_arrive(case: ChannelCase, clusters: dict[tuple[int, int], Cluster]) -> None:
    cluster = cluster_for(clusters, case)
    programs = {devices: cluster.compile(module, devices) for devices, module in case.modules()}
    arguments = {device: case.arguments(device) for device in range(case.devices)}
    for _ in range(3):
        assert not case.wrong(cluster.run(programs, arguments, time_limit=20))
