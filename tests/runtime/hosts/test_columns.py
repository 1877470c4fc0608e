"""Calls under way whose devices live on two hosts."""

from __future__ import annotations

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.arrays.columns import ColumnCalls
from tests.runtime.arrays.columns_cases import STEP, STUCK, arguments

pytestmark = pytest.mark.cluster


@pytest.mark.exhaustive
def test_calls_take_results_and_arguments_are_copied_while_others_run(address: str) -> None:
    with dx.Cluster(partitions=2, address=address, devices_per_host=[1, 1]) as cluster:
        cluster.wait_started()
        step = ColumnCalls(cluster, cluster.compile(dx.parse(STEP)))
        lines = [arguments(cluster, step) for _ in range(4)]
        for _ in range(6):
            lines = [step.submit(columns, donated=(0, 1)) for columns in lines]
            lines[0] = arguments(cluster, step)
        for columns in lines[1:]:
            for array, number in zip(columns[0].arrays, columns[1].arrays):
                np.testing.assert_array_equal(array, (np.arange(2048) + 1) / 2)
                assert int(number) == 11
        stuck = ColumnCalls(cluster, cluster.compile(dx.parse(STUCK)))
        failed = step.submit([*stuck.submit([lines[0][0]]), lines[0][1]])
        with pytest.raises(dx.DeadlockError):
            failed[0].settle()
        assert int(step.submit(lines[0])[1].arrays[1]) == 6
