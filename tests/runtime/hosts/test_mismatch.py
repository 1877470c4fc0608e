"""Members on several hosts that never meet: errors at once there, too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.errors import CollectiveMismatchError, DeadlockError
from tests.runtime.failures.mismatch_cases import ARGUMENTS, DEVICES, SUM, branching, compiled, fails, program

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[dx.Cluster]:
    """Two devices on each of two hosts."""
    with dx.Cluster(replicas=DEVICES, address=address, devices_per_host=[2, 2]) as opened:
        opened.wait_started()
        yield opened


def works(cluster: dx.Cluster) -> bool:
    outs = cluster.run({range(DEVICES): program(SUM)}, dict.fromkeys(range(DEVICES), ARGUMENTS))
    return all(np.asarray(outs[d][0]).tolist() == [4.0] * 8 for d in range(DEVICES))


GROUPS = {  # of the devices below a number, and of the others
    "on two hosts": ("{{0,2},{1,3}}", "{{0,1,2,3}}", 1),
    "both on the other host": ("{{2,3},{0,1}}", "{{3,2},{0,1}}", 3),
    "both on the driver's host": ("{{0,1},{2,3}}", "{{1,0},{2,3}}", 1),
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("where", GROUPS)
def test_groups_that_never_meet(cluster: dx.Cluster, where: str) -> None:
    first, second, below = GROUPS[where]
    instructions = [f"all-reduce(p), to_apply=add, replica_groups={groups}" for groups in (first, second)]
    step = cluster.compile(branching(*instructions, below=below))
    text = fails(lambda: step([ARGUMENTS] * DEVICES, time_limit=10), CollectiveMismatchError)
    assert "neither can go on" in text
    assert "replica_groups: {" in text
    assert works(cluster)


def test_instructions_that_differ(cluster: dx.Cluster) -> None:
    other = program("f32[8] all-reduce(p), to_apply=maximum, replica_groups={}", "b")
    text = fails(compiled(cluster, program(SUM, "a"), other), CollectiveMismatchError)
    assert "they differ in to_apply" in text
    assert works(cluster)


def test_a_member_whose_program_has_ended(cluster: dx.Cluster) -> None:
    step = cluster.compile(branching("negate(p)", "all-reduce(p), to_apply=add, replica_groups={{0,3},{1,2}}"))
    text = fails(lambda: step([ARGUMENTS] * DEVICES, time_limit=10), DeadlockError)
    assert "device 3 waits in c2 (branching.hlo:" in text
    assert "for device 0, whose program has ended" in text
    assert works(cluster)
