"""Traces and flight recorders of devices on several hosts: read through the agents, on one clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from distxla.collectives import recorder
from distxla.errors import DistxlaError
from distxla.text.parser import parse_module
from tests.collectives.recorder_cases import LOOP
from tests.runtime import trace_schema
from tests.runtime.calls.trace_cases import STUCK, X, slices

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[dx.Cluster]:
    """A device on each of two hosts."""
    with dx.Cluster(replicas=2, address=address, devices_per_host=[1, 1]) as opened:
        opened.wait_started()
        yield opened


def test_a_trace_of_both_hosts(cluster: dx.Cluster, tmp_path: Path) -> None:
    module = parse_module(LOOP.format(n=4, times=5))
    wanted = cluster.compile(module)([X])
    step = cluster.compile(module, trace=True)
    with cluster.trace() as trace:
        outs = step([X])
    assert [np.asarray(row[0]).tobytes() for row in outs] == [np.asarray(row[0]).tobytes() for row in wanted]
    trace.write(tmp_path / "trace.json")
    document = trace_schema.read(tmp_path / "trace.json")
    rounds = [slices(document, device, "collective") for device in range(2)]
    assert [[row["name"] for row in rows] for rows in rounds] == [["y", "z"] * 5] * 2
    for first, second in zip(*rounds, strict=True):  # nobody leaves a round of both before the other has come
        assert first["ts"] < second["ts"] + second["dur"]
        assert second["ts"] < first["ts"] + first["dur"]
    (call,) = (row for row in trace_schema.by_phase(document)["X"] if row["cat"] == "call")
    assert all(call["ts"] < row["ts"] < call["ts"] + call["dur"] for row in rounds[1])


def test_the_other_host_tells_its_clock(cluster: dx.Cluster) -> None:
    (remote,) = cluster.hosts.remotes
    asked = time.monotonic_ns()
    ahead = remote.clock_ahead()
    assert abs(ahead) <= time.monotonic_ns() - asked  # both run on this machine


def test_after_a_failure_the_other_host_tells_its_last_events(cluster: dx.Cluster) -> None:
    step = cluster.compile(parse_module(STUCK))
    with pytest.raises(DistxlaError):
        step([X], time_limit=3)
    loader = cluster.loader
    assert loader is not None
    records = loader.dispatcher.records()
    mine, theirs = (recorder.events(records, device) for device in range(2))
    assert mine[-1].ended is None
    assert theirs[-1].ended is not None
    assert theirs[-1].round == mine[-2].round
