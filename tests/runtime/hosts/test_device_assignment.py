"""Programs on some devices of two hosts: groups, permutes and channels across them in the program's own order."""

from __future__ import annotations

import numpy as np
import pytest

import distxla as dx
from tests.runtime.assigned_programs import CROSSED, MEETING, expected_meeting, meeting_args

pytestmark = pytest.mark.cluster


@pytest.mark.exhaustive
def test_assignments_across_two_hosts(address: str) -> None:
    with dx.Cluster(partitions=5, address=address, devices_per_host=[3, 2]) as cluster:
        for table in ([[4, 0], [1, 3]], [[3, 4], [2, 0]], [[0, 1], [2, 3]]):
            step = cluster.compile(dx.parse(MEETING), device_assignment=table)
            for seed in range(2):
                outs = step(meeting_args(seed))
                assert [[np.asarray(array).tolist() for array in row] for row in outs] == expected_meeting(seed)
        crossed = cluster.compile(dx.parse(CROSSED), device_assignment=[[4, 1]])
        with pytest.raises(dx.DeadlockError) as caught:
            crossed([[np.ones(2, "f"), np.int32(0)], [np.ones(2, "f"), np.int32(1)]])
        assert caught.value.diagnosis is not None
        assert sorted(caught.value.diagnosis.cycle) == [1, 4]
        for row in crossed([[np.ones(2, "f"), np.int32(1)]] * 2):
            assert np.asarray(row[1]).tolist() == [2, 2]
