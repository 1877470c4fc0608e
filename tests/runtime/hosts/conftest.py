"""One set of Ray nodes for all tests here: to start them takes longer than most of the tests do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtime.hosts.nodes import ray_nodes


@pytest.fixture(scope="package", autouse=True)
def ray_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Three nodes, whose CPUs suffice for 2, 1 and 1 devices where nobody says how many they shall take.

    From the first test of this package to its last, and before any module's check for what was left behind. A test that
    adds a node takes it away again. The process is joined to them meanwhile, and can be to no other Ray: for each time
    that it joins, Ray starts workers ahead and takes the classes of actors anew.
    """
    from distxla.runtime.ray import access
    from distxla.testing.session import checks_of  # and with it the runtime

    checks_of(request.config).pool.close()  # the nodes would take the token of its Ray from the environment
    with ray_nodes([2, 1, 1], forked=True) as started:
        session, _ = access.acquire(1, started.address, threading.Event())
        try:
            yield started
        finally:
            access.release(session)


@pytest.fixture(scope="package")
def address(ray_cluster: Any) -> str:
    return str(ray_cluster.address)
