"""Communication between devices of one run on several Ray nodes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distxla as dx
from distxla.ir.counts import Counts
from distxla.runtime.cluster import Cluster
from tests.collectives.matrix import cases, check
from tests.collectives.matrix_executors import on_cluster
from tests.programs import PROGRAMS, ShardedProgram
from tests.runtime import hand_made
from tests.runtime.hosts.faults_cases import agent_pid, later, pids
from tests.samples import examples
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
TWO, THREE = (3, 5), (3, 1, 4)
X = np.arange(4, dtype=np.float32)

ALL_REDUCE = """HloModule sum
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[SIZE] parameter(0)
  ROOT r = f32[SIZE] all-reduce(x), channel_id=1, use_global_device_ids=true, replica_groups={{ALL}}, to_apply=add
}
"""


@pytest.fixture(scope="module")
def on_two_hosts(address: str) -> Iterator[Cluster]:
    """Eight partitions; for tests after which it can still be used."""
    with Cluster(partitions=8, address=address, devices_per_host=TWO) as opened:
        opened.wait_started()
        yield opened


@pytest.fixture(scope="module")
def on_three_hosts(address: str) -> Iterator[Cluster]:
    with Cluster(partitions=8, address=address, devices_per_host=THREE) as opened:
        opened.wait_started()
        yield opened


@pytest.fixture(params=["on_two_hosts", pytest.param("on_three_hosts", marks=pytest.mark.exhaustive)])
def partitioned(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def on_one_host(address: str) -> dict[str, list[list[bytes]]]:
    """What the whole programs give on one host, by name."""
    with Cluster(partitions=8, address=address, devices_per_host=[8]) as opened:
        return {program.name: bits_of(opened, program) for program in PROGRAMS}


def bits_of(cluster: Cluster, program: ShardedProgram) -> list[list[bytes]]:
    outs = cluster.compile(dx.parse(program.text("partitioned")))(program.arguments, time_limit=60)
    program.assert_results(outs)
    return [[np.asarray(leaf).tobytes() for leaf in row] for row in outs]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_whole_programs_give_the_same_bits_on_any_number_of_hosts(
    partitioned: Cluster, on_one_host: dict[str, list[list[bytes]]], program: ShardedProgram
) -> None:
    for _ in range(2):
        assert bits_of(partitioned, program) == on_one_host[program.name]


@pytest.mark.slow
@settings(max_examples=examples(20, one_in=3), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_collectives_of_the_matrix(partitioned: Cluster, data: st.DataObject) -> None:
    check(data.draw(cases((1, 8))), on_cluster(partitioned))


@pytest.fixture(scope="module")
def replicated(address: str) -> Iterator[Cluster]:
    """Four replicas of two partitions, one of which is on both hosts."""
    with Cluster(4, 2, address=address, devices_per_host=TWO) as opened:
        opened.wait_started()
        yield opened


@pytest.mark.exhaustive
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_groups_of_replicas_and_partitions(replicated: Cluster, data: st.DataObject) -> None:
    check(data.draw(cases((4, 2))), on_cluster(replicated))


def whole_sum(cluster: Cluster, size: int = 4) -> Any:
    everyone = ",".join(map(str, range(cluster.devices)))
    return cluster.compile(dx.parse(ALL_REDUCE.replace("SIZE", str(size)).replace("ALL", everyone), "sum.hlo"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_many_rounds(on_two_hosts: Cluster, size: int) -> None:
    step = whole_sum(on_two_hosts, size)
    args = [[np.full(size, d + 1, np.float32)] for d in range(8)]
    outs = step(args, repeat=50 if size > 1000 else 500)
    for d in range(8):
        assert np.array_equal(np.asarray(outs[d][0]), np.full(size, 36, np.float32))


def run_without_the_last(cluster: Cluster, time_limit: float) -> None:
    """All devices of a group wait for the last one, which does something else and never comes."""
    count = cluster.devices
    waiting = replace(hand_made.waiting(count), counts=Counts(cluster.replicas, cluster.partitions))
    last = hand_made.adopted(cluster, waiting, [count - 1])
    others = hand_made.adopted(cluster, whole_sum(cluster).program, range(count - 1))
    cluster.run({range(count - 1): others, count - 1: last}, {d: [X] for d in range(count - 1)}, time_limit=time_limit)


def test_a_round_without_all_members_can_be_ended(on_two_hosts: Cluster) -> None:
    with pytest.raises(dx.TimeLimitError) as caught:
        run_without_the_last(on_two_hosts, 2)
    text = str(caught.value)
    assert re.search(
        r"\n  network: host 0 has waited \d+\.\d s for host 1 \(last heard of \d+\.\d s ago\) to be ", text
    )
    assert "\n  devices 0-6 wait in r (sum.hlo:7:8) for device 7: all-reduce, group {0,1,2,3,4," in str(caught.value)
    step = whole_sum(on_two_hosts)
    for _ in range(5):
        assert np.array_equal(np.asarray(step([X])[7][0]), 8 * X)


def test_a_member_that_has_no_part_in_the_call_is_named(on_two_hosts: Cluster) -> None:
    part = hand_made.adopted(on_two_hosts, whole_sum(on_two_hosts).program, range(7))
    with pytest.raises(dx.DeadlockError, match=r"waits in r \(sum.hlo:7:8\) for device 7, which runs nothing in this"):
        part([X], time_limit=20)


DIFFERENT = """HloModule different
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
multiply { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT p = f32[] multiply(a, b) }
first { y = f32[4] parameter(0)
  ROOT sum = f32[4] all-reduce(y), ALL, to_apply=add }
second { z = f32[4] parameter(0)
  ROOT product = f32[4] all-reduce(z), ALL, to_apply=multiply }
ENTRY main {
  x = f32[4] parameter(0)
  id = u32[] partition-id()
  k = u32[] constant(BORDER)
  low = pred[] compare(id, k), direction=LT
  ROOT r = f32[4] conditional(low, x, x), true_computation=first, false_computation=second
}
""".replace("ALL", "channel_id=1, use_global_device_ids=true, replica_groups={{0,1,2,3,4,5,6,7}}")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("border", [1, 3, 7])
def test_members_with_different_instructions_are_both_named(on_two_hosts: Cluster, border: int) -> None:
    step = on_two_hosts.compile(dx.parse(DIFFERENT.replace("BORDER", str(border)), "different.hlo"))
    watch = Stopwatch()
    with pytest.raises(dx.CollectiveMismatchError, match=r"device \d enters with .*, device \d with ") as caught:
        step([X], time_limit=20)
    assert watch.seconds < 10
    assert "sum (different.hlo:9:8)" in str(caught.value)
    assert "product (different.hlo:11:8)" in str(caught.value)
    assert np.array_equal(np.asarray(whole_sum(on_two_hosts)([X])[7][0]), 8 * X)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("victim", ["replica here", "replica elsewhere", "agent", "proxy of the driver's host"])
def test_a_lost_process_releases_the_members_on_all_hosts(address: str, victim: str) -> None:
    with Cluster(4, address=address, devices_per_host=[2, 2]) as opened:
        assert np.array_equal(np.asarray(whole_sum(opened)([X])[3][0]), 4 * X)
        pid, message = {
            "replica here": (pids(opened)[1], r"the replica of device 1 \(process \d+ on host 0 "),
            "replica elsewhere": (pids(opened)[2], r"the replica of device 2 \(process \d+ on host 1 "),
            "agent": (agent_pid(opened, 1), r"host 1 \(.*\) with the devices 2 to 3 was lost"),
            "proxy of the driver's host": (agent_pid(opened, 0), r"the proxy of host 0 \(.*\) was lost"),
        }[victim]
        later(1.5, os.kill, pid, signal.SIGKILL)
        watch = Stopwatch()
        with pytest.raises(dx.ReplicaLostError, match=message):
            run_without_the_last(opened, 30)
        assert watch.seconds < 1.5 + 1.5
