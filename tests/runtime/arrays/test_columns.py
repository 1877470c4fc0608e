"""Calls by columns: several under way, donation, failures at the result, and calls of the other kind beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.arrays import call_queue
from distxla.runtime.arrays.call_queue import PendingCall
from distxla.runtime.arrays.columns import Column, ColumnCalls, put_column
from tests.runtime.arrays.columns_cases import STEP, STUCK, arguments
from tests.runtime.busy_queue import busy_queue

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(partitions=2) as found:
        yield found


@pytest.fixture(scope="module")
def step(cluster: dx.Cluster) -> ColumnCalls:
    cluster.wait_started()
    return ColumnCalls(cluster, cluster.compile(dx.parse(STEP)))


def test_calls_take_results_that_are_pending(cluster: dx.Cluster, step: ColumnCalls) -> None:
    columns = arguments(cluster, step)
    with busy_queue(cluster):
        for _ in range(10):
            columns = step.submit(columns)
        assert columns[0].call is not None
        assert not columns[0].call.is_over
    x, n = columns
    for array, number in zip(x.arrays, n.arrays):
        np.testing.assert_array_equal(array, (np.arange(2048) + 1) / 2)
        assert int(number) == 15
    x.settle()
    assert x.call is None


def test_a_call_of_the_other_kind_comes_behind_and_takes_the_arrays(cluster: dx.Cluster, step: ColumnCalls) -> None:
    with busy_queue(cluster) as gate:
        x, n = step.submit(arguments(cluster, step))
        threading.Timer(0.05, gate.set).start()
        outs = step.executable([[x.arrays[d], n.arrays[d]] for d in range(2)])
    assert int(outs[0][1]) == 7


def test_a_large_result_is_free_while_a_small_one_is_held(cluster: dx.Cluster, step: ColumnCalls) -> None:
    held, most = [], set()
    columns = arguments(cluster, step)
    for _ in range(20):
        columns = step.submit(columns, donated=(0, 1) if held else ())
        held.append(columns[1].arrays[0])
        columns[0].settle()
        most.add(cluster.heap.used)
    assert max(most) - min(most) < 4 * columns[0].shape.byte_size, "donated arrays were not used again"
    assert [int(n) for n in held] == list(range(6, 26))


def test_a_step_needs_room_for_what_it_takes_and_what_it_gives(
    cluster: dx.Cluster, step: ColumnCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_queue, "MOST_BYTES", 1)
    columns = arguments(cluster, step)
    before, used = cluster.heap.used, []
    for _ in range(10):
        columns = step.submit(columns, donated=(0, 1))
        used.append(cluster.heap.used)
    assert max(used) - before < 1.5 * columns[0].shape.byte_size
    assert int(columns[1].arrays[0]) == 15


def test_a_donated_column_is_gone(cluster: dx.Cluster, step: ColumnCalls) -> None:
    columns = arguments(cluster, step)
    with busy_queue(cluster):
        view = columns[0].arrays[1]
        results = step.submit(columns, donated=(0,))
        assert columns[0].is_deleted
        for use in (lambda: columns[0].arrays, lambda: step.submit(columns)):
            with pytest.raises(dx.ArgumentError, match="deleted, or donated"):
                use()
    np.testing.assert_array_equal(results[0].arrays[0][:2], [0.5, 1.0])
    np.testing.assert_array_equal(view, np.ones(2048)), "a view that the caller holds keeps its values"


def test_columns_that_do_not_fit_are_refused(cluster: dx.Cluster, step: ColumnCalls) -> None:
    x, n = arguments(cluster, step)
    with pytest.raises(dx.ArgumentError, match=r"argument 0: expected f32\[2048\], found s32\[\]"):
        step.submit([n, x])
    with pytest.raises(dx.ArgumentError, match="expected 2 arguments for step, found 1"):
        step.submit([x])
    with pytest.raises(dx.ArgumentError, match="on other devices"):
        step.submit([x, put_column(cluster, (1, 0), n.shape, [np.int32(1)])])


def test_a_deadlock_is_raised_at_the_result_and_later_calls_name_it(cluster: dx.Cluster, step: ColumnCalls) -> None:
    stuck = ColumnCalls(cluster, cluster.compile(dx.parse(STUCK)))
    x, n = arguments(cluster, step)
    (y,) = stuck.submit([x])
    z, _ = step.submit([y, n])
    with pytest.raises(dx.DeadlockError, match="rd") as caught:
        z.settle()
    assert caught.value.diagnosis is not None
    assert caught.value.diagnosis.cycle
    assert "step was not run: it takes a result of stuck, which failed" in "\n".join(caught.value.__notes__)
    with pytest.raises(dx.DeadlockError):
        np.asarray(y.arrays[0])
    with pytest.raises(dx.DeadlockError):
        step.executable([[y.arrays[d], n.arrays[d]] for d in range(2)])
    np.testing.assert_array_equal(step.submit([x, n])[0].arrays[0][:2], [0.5, 1.0])


def test_a_trace_holds_the_calls_that_were_under_way(cluster: dx.Cluster, step: ColumnCalls) -> None:
    columns = arguments(cluster, step)
    with cluster.trace() as trace:
        for _ in range(3):
            columns = step.submit(columns)
    assert "3 calls" in repr(trace)
    assert len(trace.events()[0]) == 3


def test_leaving_the_cluster_finishes_calls() -> None:
    with dx.Cluster(partitions=2) as cluster:
        cluster.wait_started()
        calls = ColumnCalls(cluster, cluster.compile(dx.parse(STEP)))
        columns = calls.submit(arguments(cluster, calls))
    assert int(columns[1].arrays[0]) == 6
    with pytest.raises(dx.ClusterError, match="the cluster is closed"):
        calls.submit(columns)


def test_leaving_the_cluster_raises_a_failure_that_nobody_saw() -> None:
    with pytest.raises(dx.DeadlockError):
        leave_stuck()


def leave_stuck() -> None:
    with dx.Cluster(partitions=2) as cluster:
        cluster.wait_started()
        stuck = ColumnCalls(cluster, cluster.compile(dx.parse(STUCK)))
        stuck.submit([put_column(cluster, (0, 1), stuck.executable.parameters[0], [np.ones(2048, np.float32)])])


def test_an_error_within_the_cluster_ends_calls_under_way() -> None:
    results: list[Column] = []
    with pytest.raises(ValueError, match="mine"):
        leave_with_an_error(results)
    with pytest.raises(dx.ClusterError, match="interrupted"):
        np.asarray(results[0].arrays[0])


def leave_with_an_error(results: list[Column]) -> None:
    with dx.Cluster(partitions=2) as cluster:
        cluster.wait_started()
        calls = ColumnCalls(cluster, cluster.compile(dx.parse(STEP)))
        cluster.queue.submit(PendingCall("gate", lambda: threading.Event().wait(0.2)))
        results += calls.submit(arguments(cluster, calls))
        raise ValueError("mine")
