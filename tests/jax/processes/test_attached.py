"""A JAX process's part of the cluster, and its owner, which has another process, too."""

from __future__ import annotations

import threading

import pytest

from distxla.errors import ReplicaLostError
from distxla.jax.processes.attached import AttachedCluster
from distxla.jax.processes.introduced import introduction
from distxla.jax.processes.owner_file import OWNER, machine_of_process, pack_paths
from distxla.jax.processes.world import World
from tests.jax.processes.fake_process_cases import LOCAL, Served, summing


class Store:
    """Has the path of the owner's file once `ready` is set."""

    def __init__(self, path: str) -> None:
        self.ready = threading.Event()
        self._path = path

    def put(self, key: str, value: bytes) -> None:
        raise AssertionError(key)

    def get(self, key: str, seconds: float) -> bytes:
        assert self.ready.wait(seconds)
        return pack_paths({machine_of_process(): self._path})


def test_a_process_that_ends_before_it_has_found_the_owner_says_so_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OWNER, raising=False)
    served = Served()
    store = Store(served.path)
    settings = served.owner.settings
    cluster = AttachedCluster(World(1, 2, LOCAL), settings, store)
    try:
        cluster.start()
        cluster.bye()
        store.ready.set()
        told = introduction(settings).to_json()
        other = served.join(0, **told)
        other.attached()
        for _ in range(2):  # the end may be told before the call, or after
            call = other.launch(other.compile(summing()))
            with pytest.raises(ReplicaLostError, match="process 1 has ended before its first call"):
                other.over(call)
    finally:
        cluster.close()
        served.end()
