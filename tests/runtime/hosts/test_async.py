"""Asynchronous pairs of devices on several Ray nodes: a proxy takes part in rounds that are begun and ended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.runtime.cluster import Cluster
from tests.collectives.async_group_flows import FLOWS
from tests.collectives.async_groups import GROUPS, Group
from tests.runtime.random_modules import RandomModule

pytestmark = pytest.mark.cluster
DEVICES = 4


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[Cluster]:
    with Cluster(DEVICES, address=address, devices_per_host=[1, 3]) as opened:
        opened.wait_started()
        yield opened


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("seed", range(400, 404))
def test_random_modules(cluster: Cluster, seed: int) -> None:
    made = RandomModule(seed, DEVICES, pairs=True)
    module = dx.parse(made.text, f"random{seed}.hlo")
    random = np.random.default_rng(seed)
    sizes = {"s32[4]": (4,), "s32[8]": (8,), "s32[]": ()}
    arguments = [
        [random.integers(-9, 9, sizes[kind]).astype(np.int32) for kind in made.parameters] for _ in range(DEVICES)
    ]
    wanted = run_reference(module, arguments, Counts(DEVICES, 1))
    outs = cluster.compile(module)(arguments, time_limit=60)
    for got, want in zip(outs, wanted, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("group", [*GROUPS, *FLOWS], ids=lambda group: group.name)
def test_groups(cluster: Cluster, group: Group) -> None:
    """Transfers and collectives that an async-start begins together."""
    xs = group.arguments()
    outs = cluster.compile(dx.parse(group.module_text(), "group.hlo"))([[x] for x in xs], time_limit=60)
    for device, leaves in enumerate(outs):
        for got, want in zip(leaves, group.expected(xs, device), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)
