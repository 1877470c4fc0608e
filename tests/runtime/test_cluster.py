"""Calls, arguments and results on a small cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import distxla as dx
from distxla.runtime.cluster import Cluster
from distxla.runtime.ray import access
from distxla.runtime.ray.driver_process import RayDriverProcess
from distxla.runtime.ray.embedded import EmbeddedRay
from distxla.testing import ClusterPool
from tests.runtime import hand_made

pytestmark = pytest.mark.cluster
DEVICES = 3
MAX_REPLICA_BYTES = 120 << 20
X = np.arange(4, dtype=np.float32)

ALL_REDUCE = """HloModule sum, replica_count=3

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY main {
  x = f32[4] parameter(0)
  r = f32[4] all-reduce(x), replica_groups={{0,1,2}}, to_apply=add
  ROOT t = (f32[4], f32[4]) tuple(r, x)
}
"""


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


@pytest.fixture(scope="module")
def add_one(cluster: Cluster) -> dx.Executable:
    return hand_made.adopted(cluster, hand_made.add_one(DEVICES))


def test_a_flat_list_goes_to_every_device(add_one: dx.Executable) -> None:
    outs = add_one([X])
    assert [[a.device for a in row] for row in outs] == [[0], [1], [2]]
    assert all(np.array_equal(np.asarray(row[0]), X + 1) for row in outs)


def test_each_device_has_its_own_arguments(add_one: dx.Executable) -> None:
    outs = add_one([[X * d] for d in range(DEVICES)])
    assert all(np.array_equal(np.asarray(outs[d][0]), X * d + 1) for d in range(DEVICES))


def test_results_stay_on_their_devices_and_go_back_in(cluster: Cluster, add_one: dx.Executable) -> None:
    outs = add_one([X])
    used = cluster.heap.used
    for _ in range(20):
        outs = add_one(outs)
    assert np.array_equal(np.asarray(outs[2][0]), X + 21)
    assert cluster.heap.used <= used


def test_older_results_are_never_overwritten(add_one: dx.Executable) -> None:
    kept = [add_one([X + n]) for n in range(5)]
    views = [np.asarray(outs[1][0]) for outs in kept]
    del kept
    add_one([X - 50])
    assert all(np.array_equal(view, X + n + 1) for n, view in enumerate(views))


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1, "5"])
def test_a_time_limit_is_a_positive_number(add_one: dx.Executable, seconds: Any) -> None:
    with pytest.raises(dx.ArgumentError, match="time_limit: expected a positive number of seconds"):
        add_one([X], time_limit=seconds)


def test_a_run_has_programs(cluster: Cluster) -> None:
    with pytest.raises(dx.ArgumentError, match="programs: expected at least one"):
        cluster.run({})


def test_repeat_runs_within_one_call(cluster: Cluster, add_one: dx.Executable) -> None:
    add_one([X], repeat=7)
    assert len(add_one.device_s) == DEVICES
    assert add_one.run_s > 0
    with pytest.raises(dx.ArgumentError, match="repeat"):
        add_one([X], repeat=0)


BAD_ARGUMENTS = [
    ([], r"arguments on device 0: expected 1 for hand-made, found 0"),
    ([X, X], r"arguments on device 0: expected 1 for hand-made, found 2"),
    ([X.astype(np.float64)], r"argument 0 on device 0: expected f32\[4\], found f64\[4\]"),
    ([X[:3]], r"argument 0 on device 0: expected f32\[4\], found f32\[3\]"),
    ([[X], [X], [X[:2]]], r"argument 0 on device 2: expected f32\[4\], found f32\[2\]"),
    ([[X], [X]], r"expected 3 lists, one a device, found 2"),
    ([[X], [X], X], r"arguments on device 2: expected a list, found ndarray"),
    (None, r"arguments: expected a sequence of arrays, found NoneType"),
    ("abcd", r"arguments: expected a sequence of arrays, found str"),
    ({0: [X], 1: [X], 2: [X]}, r"arguments: expected a sequence of arrays, found dict"),
    ([1j], r"argument 0 on device 0: expected f32\[4\]: 1j is no f32"),
    ([np.array(["a", "b", "c", "d"])], r"expected f32\[4\], found <U1\[4\]"),
]


@pytest.mark.parametrize(("args", "message"), BAD_ARGUMENTS, ids=[m for _, m in BAD_ARGUMENTS])
def test_bad_arguments_are_named(add_one: dx.Executable, args: Any, message: str) -> None:
    with pytest.raises(dx.ArgumentError, match=message):
        add_one(args)


def test_an_array_of_another_device_is_refused(cluster: Cluster, add_one: dx.Executable) -> None:
    array = cluster.put(X, 1)
    with pytest.raises(
        dx.ArgumentError, match=r"argument 0 on device 0: expected an array on device 0, found one on d"
    ):
        add_one([[array], [X], [X]])
    assert np.array_equal(np.asarray(add_one([[X], [array], [X]])[1][0]), X + 1)
    with pytest.raises(dx.ArgumentError, match="devices 0 to 2"):
        cluster.put(X, 3)


def test_a_module_from_text_to_result(cluster: Cluster) -> None:
    step = cluster.compile(dx.parse(ALL_REDUCE))
    args = [[X + d] for d in range(DEVICES)]
    first = step(args)
    for _ in range(20):
        outs = step(args)
        for d in range(DEVICES):
            assert np.array_equal(np.asarray(outs[d][0]), 3 * X + 3)
            assert np.array_equal(np.asarray(outs[d][1]), X + d)
    assert np.array_equal(np.asarray(first[0][0]), 3 * X + 3)
    assert step.compile_s > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "at least one device"),
        ({"replicas": 1 << 40}, "at most 4096 devices"),
        ({"replicas": "2"}, "counts are integers"),
        ({"partitions": 2.5}, "counts are integers"),
        ({"address": 5}, "HOST:PORT"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(dx.ArgumentError, match=message):
        Cluster(**options)


def test_only_modules_are_compiled(cluster: Cluster) -> None:
    with pytest.raises(dx.ArgumentError, match="compile takes a Module, as load and parse give it, found str"):
        cluster.compile(ALL_REDUCE)  # type: ignore[arg-type]


def test_counts_that_disagree_are_refused(cluster: Cluster) -> None:
    with pytest.raises(dx.ArgumentError, match="replica_count=2, the cluster 3"):
        cluster.compile(dx.parse(ALL_REDUCE.replace("replica_count=3", "replica_count=2").replace(",2}}", "}}")))


def test_a_module_that_has_to_be_partitioned_is_refused_where_nobody_says_that_there_is_one_partition(
    cluster: Cluster,
) -> None:
    module = dx.parse("ENTRY e { ROOT x = f32[8] parameter(0), sharding={devices=[3]<=[3]} }")
    with pytest.raises(dx.UnsupportedOpError, match="each of 3 partitions would compute all of it") as caught:
        cluster.compile(module)
    assert caught.value.location is not None
    assert caught.value.location.column == 41
    assert caught.value.__notes__ == ["it is for 3 partitions, the cluster has 1"]


def test_programs_on_disjoint_devices(cluster: Cluster) -> None:
    double = dx.parse("ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }")
    negate = dx.parse("ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }")
    outs = cluster.run({range(2): double, 2: negate}, {d: [X + d] for d in range(DEVICES)})
    assert np.array_equal(np.asarray(outs[1][0]), 2 * (X + 1))
    assert np.array_equal(np.asarray(outs[2][0]), -(X + 2))
    for given in ([X], [[X]] * DEVICES):
        outs = cluster.run({range(2): double, 2: negate}, given)
        assert np.array_equal(np.asarray(outs[2][0]), -X)
    for wrong, message in (([[X]], "expected 3 lists, one a device, found 1"), (X, "found a single array")):
        with pytest.raises(dx.ArgumentError, match=message):
            cluster.run({range(2): double, 2: negate}, wrong)
    with pytest.raises(dx.ArgumentError, match="devices of its own"):
        cluster.run({range(2): double, 1: negate})


def test_replicas_are_small_and_hold_no_compiler(cluster: Cluster) -> None:
    assert max(cluster.resident_bytes()) <= MAX_REPLICA_BYTES
    (imported,) = cluster.hosts.ask([cluster.hosts.replicas[0].imported.remote()], 60)
    assert not {"llvmlite", "jax", "rich"} & set(imported)
    assert len({pid for _, _, pid in cluster.replicas_info}) == DEVICES


def test_everything_listens_on_the_loopback_interface_only(cluster: Cluster) -> None:
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [c.laddr.ip for p in family for c in p.net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}
    assert not any("dashboard" in " ".join(p.cmdline()) and "python" in p.name() for p in family[1:])


def test_a_wrong_token_is_refused(cluster: Cluster) -> None:
    assert access.running is not None
    assert isinstance(access.running.ray, EmbeddedRay)
    address, _ = Path(access.running.ray.place.introduced).read_text().split()
    code = f"from ray._raylet import GcsClient; GcsClient(address={address!r}).internal_kv_get(b'session_name', b'')"
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_gcs_server_request_timeout_seconds": "2",
    }
    outcome = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60)
    assert outcome.returncode != 0


def test_two_clusters_of_one_driver(cluster: Cluster, add_one: dx.Executable) -> None:
    with Cluster(1) as other:
        theirs = hand_made.adopted(other, hand_made.add_one(1))
        outs = theirs([X])
        with pytest.raises(dx.ArgumentError, match="another cluster"):
            add_one([[outs[0][0]], [X], [X]])
        assert np.array_equal(np.asarray(add_one([X])[0][0]), np.asarray(outs[0][0]))
    assert np.array_equal(np.asarray(add_one([X])[0][0]), X + 1)
    assert np.array_equal(np.asarray(outs[0][0]), X + 1), "views outlive their cluster"


def test_a_closed_cluster_says_so() -> None:
    opened = Cluster(1)
    with pytest.raises(dx.ClusterError, match="not started"):
        opened.wait_started()
    opened.start()
    step = hand_made.adopted(opened, hand_made.add_one(1))
    opened.close()
    opened.close()
    with pytest.raises(dx.ClusterError, match="closed"):
        step([X])


def test_an_address_where_nothing_answers() -> None:
    code = "from distxla.runtime.cluster import Cluster\nwith Cluster(1, address='127.0.0.1:1') as c: c.wait_started()"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "cluster: nothing answers at 127.0.0.1:1" in outcome.stderr


@pytest.mark.usefixtures("no_gpu_driver")
@pytest.mark.parametrize("options", [{"replicas": 0}, {"partitions": 0}, {"backend": "gpu"}], ids=str)
def test_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(dx.ArgumentError):
        Cluster(**options)  # type: ignore[arg-type]


def test_steps_need_no_ray(cluster: Cluster, add_one: dx.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a program is loaded, calls go through shared memory alone."""
    outs = add_one([X])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a step made a Ray call")

    monkeypatch.setattr(RayDriverProcess, "_send", refuse)
    for _ in range(20):
        outs = add_one(outs)
    assert np.array_equal(np.asarray(outs[0][0]), X + 21)
