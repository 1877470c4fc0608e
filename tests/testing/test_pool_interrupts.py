"""The exception of a signal handler at any place of the pool: nothing stays open behind its back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from distxla.testing import pool as pools
from distxla.testing.pool import ClusterPool, PooledCluster, size_of
from tests.interrupted import interrupted_everywhere
from tests.stopwatch import eventually

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
SIZE, OTHER = size_of(2), size_of(3)


class World:
    """What there is of clusters and Ray, where the pool's are stand-ins."""

    def __init__(self) -> None:
        self.open: set[PooledCluster] = set()
        self.unusable: set[PooledCluster] = set()
        self.rays = 0

    def acquire(self, workers: int, address: str | None, closing: threading.Event) -> tuple[str, bool]:
        self.rays += 1
        return "session", True

    def release(self, session: str) -> None:
        self.rays -= 1


class Share:
    def close(self) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World()

    class Cluster(PooledCluster):
        def start(self) -> Any:
            found.open.add(self)
            return self

        def wait_started(self) -> None: ...

        def close(self) -> None:
            found.open.discard(self)

    class Holdings:
        def __init__(self, cluster: Cluster) -> None: ...

    for name, value in {"PooledCluster": Cluster, "Holdings": Holdings, "ServerShare": Share}.items():
        monkeypatch.setattr(pools, name, value)
    monkeypatch.setattr(pools, "why_unusable", lambda c, _: "" if c in found.open - found.unusable else "closed")
    monkeypatch.setattr(pools, "end_by_force", lambda cluster: cluster.close())
    monkeypatch.setattr(pools.access, "acquire", found.acquire)
    monkeypatch.setattr(pools.access, "release", found.release)
    yield found
    assert eventually(lambda: not any(thread.name == "distxla-pool" for thread in threading.enumerate()))


class Steps:
    """A pool with a cluster in use, and two that are idle. at: the step that is interrupted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pool = ClusterPool(idle=2)
        for _ in range(3):
            self.pool.take(SIZE)
        for use in self.pool.over()[:2]:
            self.pool.put_back(use)

    def take(self) -> None:
        self.pool.take(SIZE)

    def take_other(self) -> None:
        self.pool.take(OTHER)

    def take_none_of_the_unusable(self) -> None:
        self.world.unusable = set(self.pool.idle)
        self.pool.take(SIZE)

    def lease(self) -> None:
        with self.pool.lease(2):
            pass

    def put_back(self) -> None:
        for use in self.pool.over():
            self.pool.put_back(use)

    def close_idle(self) -> None:
        self.pool.close_idle()

    def close(self) -> None:
        self.pool.close()


@pytest.mark.parametrize("step", [name for name in vars(Steps) if not name.startswith("_")])
def test_no_cluster_and_no_ray_is_forgotten(world: World, step: str) -> None:
    method = getattr(Steps, step)
    for place, found in interrupted_everywhere([pools], lambda: Steps(world), method):
        pool = found.pool
        assert world.open <= set(pool.clusters), place
        cluster = pool.take(SIZE)
        assert cluster in world.open - world.unusable, place
        assert world.open <= {*pool.idle, *(use.cluster for use in pool.uses)}, place
        pool.warm()
        assert world.rays == 1, place
        pool.close()
        assert not world.open, place
        assert world.rays == 0, place
        assert not pool.is_warm


def test_an_interrupt_while_ray_starts_leaves_none(world: World) -> None:
    for place, pool in interrupted_everywhere([pools], ClusterPool, ClusterPool.warm):
        pool.warm()
        assert world.rays == 1, place
        pool.close()
        assert world.rays == 0
