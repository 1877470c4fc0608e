"""Programs on processes whose text would deadlock, but another order of their instructions doesn't."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

import distxla as dx
from distxla.errors import DeadlockError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.scheduler.communication_order import order_communication
from distxla.testing import ClusterPool
from tests.deadlock_programs import NAMED, by_device, reduce
from tests.scheduler.planted_programs import PlantedPrograms

pytestmark = pytest.mark.cluster
X = [np.full(4, 1 + d, np.float32) for d in range(4)]


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=4) as found:
        yield found


def modules(name: str) -> dict[tuple[int, ...], Module]:
    return {devices: module.replace(is_scheduled=False) for devices, module in NAMED[name].modules()}


def test_modules_that_are_run_at_once(cluster: dx.Cluster) -> None:
    """Each receives what the one before it in the ring sends."""
    outs = cluster.run(modules("ring_3"), {d: [X[d]] for d in range(3)}, time_limit=60)
    assert [np.asarray(outs[d][0])[0] for d in range(3)] == [3, 1, 2]


def test_executables_that_were_compiled_apart(cluster: dx.Cluster) -> None:
    """The one that changes is compiled once more, and what the user holds stays what it is."""
    programs = {devices: cluster.compile(module, devices) for devices, module in modules("ring_2").items()}
    before = {devices: executable.module for devices, executable in programs.items()}
    for _ in range(3):
        outs = cluster.run(programs, {d: [X[d]] for d in range(2)}, time_limit=60)
        assert [np.asarray(outs[d][0])[0] for d in range(2)] == [2, 1]
        assert all(executable.run_s > 0 and len(executable.device_s) == 1 for executable in programs.values())
    assert before == {devices: executable.module for devices, executable in programs.items()}
    first, second = programs.values()
    assert list(first.together) == [(first.serial, second.serial)]
    assert [found is None for found in first.together[first.serial, second.serial]] == [True, False]
    assert (first.number is None, second.number is None) == (False, True)


def test_what_was_compiled_again_goes_with_the_executables(cluster: dx.Cluster) -> None:
    """A long-lived executable does not keep the replacements compiled for those that ran with it."""
    assert cluster.loader is not None
    (one, first_module), (other, second_module) = modules("ring_2").items()
    first = cluster.compile(first_module, one)
    for _ in range(3):
        second = cluster.compile(second_module, other)
        cluster.run({one: first, other: second}, {d: [X[d]] for d in range(2)}, time_limit=60)
        again = first.together[first.serial, second.serial][1]
        assert again is not None
        numbers = {first.number, again.number}
        assert numbers <= set(cluster.loader.loaded)
        del again
        del second
        end = time.monotonic() + 20
        while (left := {*first.together, *cluster.loader.loaded}) != {first.number} and time.monotonic() < end:
            gc.collect()
            time.sleep(0.01)
        assert left == {first.number}


def test_branches_of_one_program(cluster: dx.Cluster) -> None:
    one, other = reduce("a", "p", "{{0,1},{2,3}}"), reduce("b", "p")
    rest = "ROOT r = f32[4] add(a, b)"
    text = by_device(f"{one}\n{other}\n{rest}", *[f"{other}\n{one}\n{rest}"] * 3)
    outs = cluster.compile(dx.parse(text))([[x] for x in X], time_limit=60)
    assert [np.asarray(row[0])[0] for row in outs] == [13, 13, 17, 17]


def test_schedules_that_are_given_deadlock(cluster: dx.Cluster) -> None:
    given = {devices: module.replace(is_scheduled=True) for devices, module in modules("ring_2").items()}
    with pytest.raises(DeadlockError):
        cluster.run(given, {d: [X[d]] for d in range(2)}, time_limit=60)


@pytest.mark.slow
@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("seed", range(4))
def test_random_programs(cluster: dx.Cluster, seed: int) -> None:
    """In the order that was found they run, with the reference's results."""
    texts = PlantedPrograms(Random(seed).randrange, 4, bool(seed % 2), 10).texts()
    programs = [(tuple(devices), dx.parse(text)) for devices, text in texts]
    arguments = {d: [x] for d, x in enumerate(X)}
    found = order_communication(programs, Counts(4, 1)).modules
    reference = {d: module for (devices, _), module in zip(programs, found, strict=True) for d in devices}
    wanted = run_programs(reference, arguments, Counts(4, 1), time_limit=60)
    outs = cluster.run(dict(programs), arguments, time_limit=60)
    assert all(np.array_equal(np.asarray(outs[d][0]), wanted[d][0]) for d in range(4))
