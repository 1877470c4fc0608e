"""Injected faults in runs with several hosts: between them, of one of them, on one of their devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import distxla as dx
from tests.runtime.injection.programs import LOOP
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
X = np.arange(4, dtype=np.float32)
PLACE = "loop.hlo:10:3"
NOTICED_S = 10.0  # on a machine full of other work; `make chaos` has the bounds that are promised
LOST = {
    "corrupt:from=1,round=4": "host",
    "drop:from=1,to=0,round=3": "host",
    "duplicate:from=0,at=total,round=2": "host",
    "cut:from=1,round=2": "host",
    "kill:device=1,at=total,round=3": r"the replica of device 1 \(process \d+ on host 1 ",
    "host-lost:host=1,at=total,round=3": r"host 1 .* with device 1 was lost",
}


@contextmanager
def opened(address: str, *specs: str) -> Iterator[dx.Cluster]:
    with dx.Cluster(2, address=address, devices_per_host=[1, 1], inject=specs) as cluster:
        cluster.wait_started()
        yield cluster


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("spec", LOST)
def test_a_fault_between_hosts_is_named(address: str, spec: str) -> None:
    with opened(address, spec) as cluster:
        step = cluster.compile(dx.parse(LOOP, "loop.hlo"))
        watch = Stopwatch()
        with pytest.raises(dx.ReplicaLostError, match=LOST[spec]) as caught:
            step([X], time_limit=20)
        assert watch.seconds < NOTICED_S
        (fault,) = cluster.injected
        assert fault.happened
        assert f"this was injected: {spec}" in caught.value.message
        if "at=" in spec:
            assert str(caught.value.location) == PLACE


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("spec", ["late:from=1,to=0,round=3,ms=300", "delay:device=1,at=total,ms=300"])
def test_a_delay_changes_no_result(address: str, spec: str) -> None:
    with opened(address, spec) as cluster:
        step = cluster.compile(dx.parse(LOOP, "loop.hlo"))
        watch = Stopwatch()
        outs = step([X])
        assert watch.elapsed > 0.3
        assert all(np.array_equal(np.asarray(row[0]), X) for row in outs)
        assert [fault.happened for fault in cluster.injected] == [True]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("host-lost:host=2", "host 2: the run has 2 hosts"),
        ("drop:from=0,to=2", "host 2: the run has 2 hosts"),
        ("drop:from=0,at=totl", "no program of this run has an instruction totl"),
    ],
)
def test_a_place_that_there_is_not(address: str, spec: str, message: str) -> None:
    with (
        pytest.raises(dx.ArgumentError, match=message),
        dx.Cluster(2, address=address, devices_per_host=[1, 1], inject=[spec]) as cluster,
    ):
        cluster.compile(dx.parse(LOOP, "loop.hlo"))([X])
