"""Whatever ends what devices wait for, all waits end at once on all hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import distxla as dx
from distxla.ops.custom_calls import user
from tests.runtime.ends_of_waits import CAUSES, DEVICES, WAITS, broken, check

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[dx.Cluster]:
    """Two devices on each of two hosts."""
    with dx.Cluster(replicas=DEVICES, address=address, devices_per_host=[2, 2]) as opened:
        opened.wait_started()
        yield opened


@pytest.fixture(autouse=True)
def routines() -> Iterator[None]:
    dx.register_custom_call("broken", broken)
    yield
    user.registered.clear()


@pytest.mark.parametrize("culprit", [0, 3], ids=["on the driver's host", "on the other host"])
@pytest.mark.sampled(one_in=16, first=("its program ends-in a collective-on the other host",))
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("cause", CAUSES)
def test_all_waits_end(cluster: dx.Cluster, cause: str, wait: str, culprit: int) -> None:
    check(cluster, culprit, cause, wait)
