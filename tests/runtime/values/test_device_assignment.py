"""Programs on some of a cluster's devices: ids within the program, several at once, names in reports, refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.cluster import Cluster
from tests.runtime.assigned_programs import CROSSED, GLOBAL, LONELY, MEETING, expected_meeting, meeting_args

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with dx.Cluster(replicas=2, partitions=3) as opened:
        yield opened


def arrays(rows: Any) -> list[list[list[float]]]:
    return [[np.asarray(array).tolist() for array in row] for row in rows]


@pytest.mark.parametrize("devices", [(5, 0, 3, 1), (0, 1, 2, 3), (2, 4, 1, 5)])
def test_ids_in_the_program_are_its_own(cluster: Cluster, devices: tuple[int, ...]) -> None:
    step = cluster.compile(dx.parse(MEETING), device_assignment=np.array([devices[:2], devices[2:]]))  # type: ignore[arg-type]
    assert step.devices == devices
    for seed in range(2):
        outs = step(meeting_args(seed))
        assert [row[0].device for row in outs] == list(devices)
        assert arrays(outs) == expected_meeting(seed)


def test_assignments_share_one_compilation(cluster: Cluster) -> None:
    first, second = (
        cluster.compile(dx.parse(MEETING), device_assignment=t) for t in ([[0, 1], [2, 3]], [[3, 2], [5, 0]])
    )
    assert second.cached
    assert first.program.image == second.program.image


def test_overlapping_executables_take_turns(cluster: Cluster) -> None:
    tables = [[[0, 1], [2, 3]], [[3, 2], [1, 0]], [[4, 0], [5, 1]]]
    steps = [cluster.compile(dx.parse(MEETING), device_assignment=table) for table in tables]
    failures: list[BaseException] = []

    def call(step: dx.Executable, seed: int) -> None:
        try:
            for _ in range(10):
                assert arrays(step(meeting_args(seed))) == expected_meeting(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(step, seed)) for seed, step in enumerate(steps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


def test_disjoint_programs_run_in_one_call(cluster: Cluster) -> None:
    one = cluster.compile(dx.parse(MEETING), device_assignment=[[5, 0], [3, 1]])
    two = cluster.compile(dx.parse(GLOBAL), device_assignment=[[4, 2]])
    given = dict(zip(one.devices, meeting_args(1), strict=True)) | {4: [np.ones(2, "f")], 2: [np.full(2, 2, "f")]}
    outs = cluster.run({one.devices: one, two.devices: two}, given)
    assert arrays([outs[d] for d in one.devices]) == expected_meeting(1)
    assert arrays([outs[4], outs[2]]) == [[[2, 2]], [[4, 4]]]
    three = cluster.compile(dx.parse(GLOBAL), device_assignment=[[4, 1]])
    with pytest.raises(dx.ArgumentError, match="every program needs devices of its own"):
        cluster.run({one.devices: one, three.devices: three}, given)


def test_a_global_module_is_split_and_joined(cluster: Cluster) -> None:
    step = cluster.compile(dx.parse(GLOBAL), device_assignment=[[4, 2]])
    whole = np.arange(4, dtype=np.float32)
    outs = step([whole])
    assert arrays(outs) == [[[0, 2]], [[4, 6]]]
    np.testing.assert_array_equal(step.join(outs)[0], 2 * whole)
    with pytest.raises(dx.ArgumentError, match="replica 1: the program has replicas 0 to 0"):
        step.join(outs, replica=1)


def test_a_deadlock_names_the_clusters_devices(cluster: Cluster) -> None:
    step = cluster.compile(dx.parse(CROSSED), device_assignment=[[5, 1]])
    with pytest.raises(dx.DeadlockError) as caught:
        step([[np.ones(2, "f"), np.int32(0)], [np.ones(2, "f"), np.int32(1)]])
    diagnosis = caught.value.diagnosis
    assert diagnosis is not None
    assert sorted(diagnosis.cycle) == [1, 5]
    assert [device.device for device in diagnosis.devices] == [1, 5]
    assert diagnosis.devices[0].waits_for == (5,)
    assert diagnosis.devices[0].group == (5, 1)
    assert "device 0" not in str(caught.value)
    assert "device 5 runs s" in diagnosis.hints[0]
    again = step([[np.ones(2, "f"), np.int32(1)]] * 2)
    assert arrays(again) == [[[2, 2], [2, 2]]] * 2


def test_a_lacking_counterpart_is_said_to_be_on_the_clusters_device(cluster: Cluster) -> None:
    step = cluster.compile(dx.parse(LONELY), device_assignment=[[3, 4]])
    with pytest.raises(dx.DeadlockError, match="the recv belongs on device 4"):
        step([[np.ones(2, "f")]] * 2)


def test_a_trace_names_the_clusters_devices(cluster: Cluster) -> None:
    step = cluster.compile(dx.parse(MEETING), device_assignment=[[5, 0], [3, 1]])
    with cluster.trace() as trace:
        step(meeting_args(0))
    events = trace.events()
    assert {device for device, found in events.items() if found} == {0, 1, 3, 5}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0, 0], [1, 2]], "names device 0 twice"),
        ([[0, 1], [2, 6]], "names device 6: the cluster has devices 0 to 5"),
        ([[0, 1], [2, -1]], "names device -1: the cluster has devices 0 to 5"),
        ([0, 1, 2, 3], r"expected a table \[replicas\]\[partitions\] .* found a row 0"),
        ([[0, 1], [2]], "found rows of 1 and of 2 devices"),
        ([], "found an empty one"),
        ([[], []], "found an empty one"),
        (3, "found 3"),
        ("01", "found '01'"),
        ([["a", "b"]], "found 'a' in it"),
        ([[0, 1, 2, 3]], "module meeting has replica_count=2, the device assignment 1"),
        ([[0, 1, 2], [3, 4, 5]], "module meeting has num_partitions=2, the device assignment 3"),
    ],
)
def test_bad_tables_are_refused(cluster: Cluster, table: Any, message: str) -> None:
    with pytest.raises(dx.ArgumentError, match=message):
        cluster.compile(dx.parse(MEETING), device_assignment=table)


def test_devices_and_an_assignment_are_refused(cluster: Cluster) -> None:
    with pytest.raises(dx.ArgumentError, match="both say where a program runs"):
        cluster.compile(dx.parse(MEETING), range(4), device_assignment=[[0, 1], [2, 3]])
