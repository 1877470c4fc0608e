"""Collectives on real replicas: the matrix, the same bits under load, a thousand rounds that leave nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import distxla as dx
from distxla.errors import ExecutionError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.rewrites.reduction_order import ReductionOrder
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module
from tests.collectives.matrix import Case, cases, check
from tests.collectives.matrix_executors import on_cluster
from tests.collectives.two_programs import TwoPrograms
from tests.runtime.collectives_cases import burners
from tests.samples import examples

pytestmark = pytest.mark.cluster

COUNTS = (2, 2)
DEVICES = 4
SIZE = 40_000  # its reductions are shared out among the members

PROGRAM = f"""HloModule rounds
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
step {{
  s = (s32[], f32[{SIZE}], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{SIZE}] get-tuple-element(s), index=1
  y = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  large = f32[{SIZE}] all-reduce(x), to_apply=add, channel_id=1, replica_groups={{{{0,1}}}}
  half = f32[] constant(0.25)
  h = f32[{SIZE}] broadcast(half), dimensions={{}}
  u = f32[{SIZE}] multiply(large, h)
  small = f32[8] all-reduce(y), to_apply=add, channel_id=1, replica_groups={{{{0,1}}}}
  part = f32[2] reduce-scatter(small), to_apply=add, channel_id=1, use_global_device_ids=true, dimensions={{0}},
    replica_groups={{{{3,1,0,2}}}}
  whole = f32[8] all-gather(part), channel_id=1, use_global_device_ids=true, dimensions={{0}},
    replica_groups={{{{0,1,2,3}}}}
  swapped = f32[8] all-to-all(whole), channel_id=1, dimensions={{0}}, replica_groups={{{{1,0}}}}
  moved = f32[8] collective-permute(swapped), source_target_pairs={{{{0,1}},{{1,0}}}}
  ns = f32[] constant(0.0625)
  n = f32[8] broadcast(ns), dimensions={{}}
  v = f32[8] multiply(moved, n)
  ROOT r = (s32[], f32[{SIZE}], f32[8]) tuple(j, u, v)
}}
test {{
  s = (s32[], f32[{SIZE}], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(20)
  ROOT r = pred[] compare(i, last), direction=LT
}}
ENTRY main {{
  x = f32[{SIZE}] parameter(0)
  y = f32[8] parameter(1)
  i = s32[] constant(0)
  s = (s32[], f32[{SIZE}], f32[8]) tuple(i, x, y)
  w = (s32[], f32[{SIZE}], f32[8]) while(s), condition=test, body=step
  u = f32[{SIZE}] get-tuple-element(w), index=1
  v = f32[8] get-tuple-element(w), index=2
  ROOT r = (f32[{SIZE}], f32[8]) tuple(u, v)
}}
"""


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=COUNTS[0], partitions=COUNTS[1]) as running:
        yield running


def arguments() -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    return [[rng.normal(size=n).astype(np.float32) for n in (SIZE, 8)] for _ in range(DEVICES)]


@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(COUNTS))
def test_the_matrix(cluster: dx.Cluster, case: Case) -> None:
    check(case, on_cluster(cluster))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("order", ["rank", "tree", "ring"])
def test_ten_runs_under_load_have_the_same_bits(cluster: dx.Cluster, order: str) -> None:
    step = cluster.compile(parse_module(PROGRAM), reduction_order=order)
    given = arguments()
    with burners(2 * len(os.sched_getaffinity(0))):
        found = {tuple(np.asarray(a).tobytes() for row in step(given) for a in row) for _ in range(10)}
    assert len(found) == 1
    quiet = step(given)
    wanted = run_reference(ReductionOrder(order).run(parse_module(PROGRAM)), given, Counts(2, 2))
    assert [[np.asarray(a).tobytes() for a in row] for row in quiet] == [[a.tobytes() for a in row] for row in wanted]
    assert {tuple(np.asarray(a).tobytes() for row in quiet for a in row)} == found
    for pair in ((0, 1), (2, 3)):  # every member of a group has the same
        assert len({np.asarray(quiet[d][0]).tobytes() for d in pair}) == 1


def _resources(cluster: dx.Cluster) -> tuple[int, int, list[int]]:
    """Open files of the driver and its replicas, and the driver's and the replicas' resident bytes."""
    processes = [os.getpid(), *(pid for _, _, pid in cluster.replicas_info)]
    files = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in processes)
    with open("/proc/self/statm") as statm:
        own = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return files, own, cluster.resident_bytes()


def _carve(cluster: dx.Cluster) -> int:
    """Where the control block's free space begins, of which this takes 64 bytes."""
    return cluster.hosts.local.control.carve(64)


def test_a_thousand_rounds_leave_nothing_behind(cluster: dx.Cluster) -> None:
    """140 rounds a call."""
    step = cluster.compile(parse_module(PROGRAM))
    given = arguments()
    for _ in range(3):
        step(given)
    used, carved = cluster.heap.used, _carve(cluster)
    files, own, replicas = _resources(cluster)
    for _ in range(8):
        step(given)
    again_files, again_own, again_replicas = _resources(cluster)
    assert again_files <= files
    assert again_own - own < 4 << 20
    assert all(after - before < 4 << 20 for before, after in zip(replicas, again_replicas, strict=True))
    assert cluster.heap.used <= used
    assert _carve(cluster) <= carved + 64


def test_a_ragged_transfer_beyond_its_arrays_is_an_error_with_its_place(cluster: dx.Cluster) -> None:
    text = """HloModule ragged
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  t = s32[2] parameter(2)
  n = s32[2] parameter(3)
  ROOT r = f32[4] ragged-all-to-all(x, y, t, n, t, n), replica_groups={{0,1}}
}
"""
    step = cluster.compile(parse_module(text, "ragged.hlo"))
    rows = [[np.arange(4, dtype=np.float32), np.zeros(4, np.float32)] for _ in range(DEVICES)]
    sizes = np.ones(2, np.int32)
    good = [[*row, np.array([0, 1], np.int32), sizes] for row in rows]
    bad = [[*row, np.array([0, 4 if d == 2 else 1], np.int32), sizes] for d, row in enumerate(rows)]
    with pytest.raises(ExecutionError, match=r"ragged\.hlo:7:\d+: .*r on device 2: entry 1 of its offsets"):
        step(bad)
    assert np.asarray(step(good)[0][0]).tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(12))
def test_two_programs_in_the_same_collectives(seed: int) -> None:
    """The reference alone; replicas run the next test."""
    _check_two_programs(seed, lambda programs, rows: run_programs(programs, rows, Counts(DEVICES, 1)))


@pytest.fixture(scope="module")
def replicated(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as running:
        yield running


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("seed", range(12))
def test_two_programs_on_replicas(replicated: dx.Cluster, seed: int) -> None:
    def run(programs: dict[int, Module], rows: dict[int, list[Any]]) -> dict[int, list[Any]]:
        texts = {id(module): module for module in programs.values()}
        devices = {key: tuple(d for d in programs if id(programs[d]) == key) for key in texts}
        return replicated.run({devices[key]: module for key, module in texts.items()}, rows, time_limit=30)

    _check_two_programs(seed, run)


def _check_two_programs(seed: int, run: Any) -> None:
    first = 1 + seed % 3
    made = TwoPrograms(seed, DEVICES, first)
    modules = [parse_module(text, f"{k}.hlo") for k, text in enumerate(made.texts)]
    rng = np.random.default_rng(seed)
    given = [rng.integers(-9, 9, 8).astype(np.int32) for _ in range(DEVICES)]
    outs = run({d: modules[d >= first] for d in range(DEVICES)}, {d: [given[d]] for d in range(DEVICES)})
    for device, expected in enumerate(made.expected(given)):
        np.testing.assert_array_equal(
            np.asarray(outs[device][0]), expected, f"device {device}\n" + "\n".join(made.texts)
        )
