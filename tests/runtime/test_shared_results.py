"""Results that all members share, in real replicas: one program after another, several at once, after failures."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.cluster import Cluster
from distxla.testing import ClusterPool
from tests.runtime import hand_made

pytestmark = pytest.mark.cluster
DEVICES, COUNT = 4, 1 << 18

PROGRAM = """HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{count}] parameter(0)
  y = f32[{count}] all-reduce(x), replica_groups={groups}, to_apply=sum
  ROOT r = f32[{count}] {read}(y{more})
}}
"""


def program(read: str = "negate", count: int = COUNT, groups: str = "{{0,1,2,3}}") -> dx.Module:
    more = ", x" if read in ("add", "subtract") else ""
    return dx.parse(PROGRAM.format(count=count, groups=groups, read=read, more=more))


def rows(count: int = COUNT) -> list[list[np.ndarray]]:
    return [[np.random.default_rng(d).integers(-99, 99, count).astype(np.float32)] for d in range(DEVICES)]


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


def check(step: object, count: int = COUNT) -> None:
    given = rows(count)
    total = sum(row[0] for row in given)
    for (found,) in step(given):  # type: ignore[operator]
        np.testing.assert_array_equal(np.asarray(found), -total)


def test_programs_use_the_same_memory_one_after_the_other(cluster: Cluster) -> None:
    small, large = cluster.compile(program(count=COUNT // 4)), cluster.compile(program())
    for step, count in ((small, COUNT // 4), (large, COUNT), (small, COUNT // 4), (large, COUNT)):
        check(step, count)
        assert len(step.shared) == 1
        assert sorted(step.shared[0]) == list(range(DEVICES))
    again = cluster.compile(program())
    check(again)
    assert {block.offset for block in again.shared[0].values()} == {b.offset for b in large.shared[0].values()}


def test_the_memory_that_all_have_in_common_holds_the_result_once(cluster: Cluster) -> None:
    step = cluster.compile(program())
    given = rows()
    step(given)
    block = step.shared[0][0]
    total = sum(row[0] for row in given)
    for device in range(DEVICES):
        seen = cluster.memory(device).bytes[block.offset : block.offset + 4 * COUNT].view(np.float32)
        np.testing.assert_array_equal(seen, total)


def test_runs_in_one_call_follow_one_another(cluster: Cluster) -> None:
    step = cluster.compile(program("subtract"))
    given = rows()
    total = sum(row[0] for row in given)
    for row, (found,) in zip(given, step(given, repeat=20), strict=True):
        np.testing.assert_array_equal(np.asarray(found), total - row[0])


def test_programs_that_run_at_once(cluster: Cluster) -> None:
    """Groups within a program share; a group that spans two programs doesn't, and still agrees."""
    given = rows()
    halves = cluster.run(
        {range(2): program("add", groups="{{0,1},{2,3}}"), range(2, 4): program("negate", groups="{{0,1},{2,3}}")},
        dict(enumerate(given)),
    )
    first, second = given[0][0] + given[1][0], given[2][0] + given[3][0]
    for d, wanted in enumerate((first + given[0][0], first + given[1][0], -second, -second)):
        np.testing.assert_array_equal(np.asarray(halves[d][0]), wanted)
    whole = cluster.run({range(2): program("add"), range(2, 4): program("negate")}, dict(enumerate(given)))
    total = first + second
    for d, wanted in enumerate((total + given[0][0], total + given[1][0], -total, -total)):
        np.testing.assert_array_equal(np.asarray(whole[d][0]), wanted)


def test_after_a_failed_call(cluster: Cluster) -> None:
    step = cluster.compile(program())
    check(step)
    with pytest.raises(dx.TimeLimitError):
        hand_made.adopted(cluster, hand_made.waiting(DEVICES))(time_limit=0.3)
    check(step)


@pytest.mark.slow
def test_nothing_is_left_open() -> None:
    before = set(os.listdir("/dev/shm"))
    opened = []
    for _ in range(2):
        with Cluster(2) as cluster:
            cluster.compile(dx.parse(PROGRAM.format(count=COUNT, groups="{{0,1}}", read="negate", more="")))(
                [np.ones(COUNT, np.float32)]
            )
        names = [os.path.basename(_target(entry)) for entry in os.listdir("/proc/self/fd")]
        opened.append(sum("distxla" in name for name in names))
    assert opened[1] == opened[0]
    assert set(os.listdir("/dev/shm")) - before == set()


def _target(entry: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{entry}")
    except OSError:  # the directory itself
        return ""
