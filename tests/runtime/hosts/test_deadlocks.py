"""Devices on several hosts that can never go on: found there, too, with the same words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

import distxla as dx
from distxla.errors import DeadlockError
from distxla.ops.custom_calls import user
from distxla.runtime.failures import stragglers
from tests.deadlock_programs import FIVE, NAMED, STEP, by_device, looped, reduce
from tests.diagnosis.golden import check_run
from tests.runtime.failures.deadlocks_cases import SECONDS, X, run

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def pair(address: str) -> Iterator[dx.Cluster]:
    """A device on each of two hosts."""
    with dx.Cluster(replicas=2, address=address, devices_per_host=[1, 1]) as opened:
        opened.wait_started()
        yield opened


def check_that_it_never_goes_on(name: str, cluster: dx.Cluster) -> None:
    for _ in range(2):
        error, watch = run(NAMED[name], cluster)
        assert isinstance(error, DeadlockError), error
        assert error.diagnosis is not None
        check_run(name, error.diagnosis)
        assert watch.seconds < SECONDS + 1


@pytest.mark.sampled(one_in=2, first=("recv_done_before_send_on_both_sides",))
@pytest.mark.parametrize("name", ["recv_done_before_send_on_both_sides", "loops_by_device"])
def test_what_two_hosts_can_never_end(pair: dx.Cluster, name: str) -> None:
    check_that_it_never_goes_on(name, pair)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ring_3", "ring_of_groups_3"])
def test_what_three_hosts_can_never_end(address: str, name: str) -> None:
    with dx.Cluster(replicas=3, address=address, devices_per_host=[1] * 3) as cluster:
        cluster.wait_started()
        check_that_it_never_goes_on(name, cluster)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("slow", [0, 1], ids=["on the driver's host", "on the other host"])
def test_a_notice_names_the_straggler(
    pair: dx.Cluster, slow: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stragglers, "NOTICE_S", 0.7)

    def slowly(x: Any) -> Any:
        time.sleep(2)
        return x

    bodies = [f'v = f32[4] custom-call(p), custom_call_target="slowly"\n{reduce("ROOT c", "v")}', reduce("ROOT c", "p")]
    dx.register_custom_call("slowly", slowly)
    try:
        pair.compile(dx.parse(by_device(*(bodies if slow == 0 else bodies[::-1])), "a.hlo"))([[X], [X]])
    finally:
        user.registered.clear()
    lines = caplog.messages
    assert 1 <= len(lines) <= 2
    pattern = (
        rf"distxla: device {slow} computes.*; device {1 - slow} waits for it in c \(a\.hlo:\d+:8\), for \d s so far"
    )
    assert all(re.fullmatch(pattern, line) for line in lines), lines


@pytest.mark.exhaustive
def test_times_are_those_of_the_drivers_clock(address: str) -> None:
    """As if the other host's clock were 100 s ahead."""
    case = NAMED["loops_by_device"]
    with dx.Cluster(replicas=2, address=address, devices_per_host=[1, 1]) as cluster:
        cluster.wait_started()
        (remote,) = cluster.hosts.remotes
        assert abs(remote.ahead) < 1e9  # both run on this machine
        cluster.compile(dx.parse(looped(STEP, FIVE), "before.hlo"))([X])
        for ahead in (0, 100):
            remote.ahead += ahead * 1_000_000_000
            remote.ahead_at = time.monotonic()
            error, watch = run(case, cluster)
            assert isinstance(error, DeadlockError)
            assert error.diagnosis is not None
            here, there = (device.events for device in error.diagnosis.devices)
            assert all(event.begun is not None for event in (*here, *there))
            assert -watch.elapsed < (here[0].begun or 0) < 0
            assert -watch.elapsed < (there[0].begun or 0) + ahead < 0
            assert [event.round for event in there] == [1, 2, 3]
