"""Devices on several hosts that can never go on: found there, too, with the same words."""

from __future__ import annotations

import pytest

import distxla as dx
from distxla.errors import DeadlockError
from tests.deadlock_programs import NAMED
from tests.runtime.test_deadlocks import SECONDS, TEXTS, run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize(
    "name", ["recv_done_before_send_on_both_sides", "ring_3", "ring_of_groups_3", "loops_by_device"]
)
def test_what_can_never_go_on(address: str, name: str) -> None:
    case = NAMED[name]
    with dx.Cluster(replicas=case.replicas, address=address, devices_per_host=[1] * case.replicas) as cluster:
        cluster.wait_started()
        for _ in range(2):
            error, seconds = run(case, cluster)
            assert isinstance(error, DeadlockError), error
            assert str(error) == TEXTS[name]
            assert seconds < SECONDS + 1
