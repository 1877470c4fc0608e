"""Programs that end well are never taken for stuck, however often and at whatever moment they are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.runtime.calls import dispatch
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module
from tests.runtime.collectives_cases import burners
from tests.runtime.random_modules import RandomModule

pytestmark = pytest.mark.cluster
DEVICES = 4


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as running:
        yield running


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("seed", range(500, 510))
def test_random_modules_under_load(cluster: dx.Cluster, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at every 20 microseconds, while two processes want the processors, too."""
    made = RandomModule(seed, DEVICES, pairs=True)
    module = parse_module(made.text, f"random{seed}.hlo")
    random = np.random.default_rng(seed)
    sizes = {"s32[4]": (4,), "s32[8]": (8,), "s32[]": ()}
    args = [[random.integers(-9, 9, sizes[kind]).astype(np.int32) for kind in made.parameters] for _ in range(DEVICES)]
    wanted = run_reference(module, args, Counts(DEVICES, 1))
    step = cluster.compile(module)
    step(args)
    monkeypatch.setattr(dispatch, "SLICE_NS", 20_000)
    with burners(2):
        for _ in range(3):
            outs = step(args, repeat=300)
    for row, expected in zip(outs, wanted, strict=True):
        for a, b in zip(row, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)
