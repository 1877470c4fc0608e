"""Two Ray nodes on this machine, for all files of this folder: for the processes they are two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distxla.testing.session import checks_of
from tests.runtime.hosts.nodes import ray_nodes


@pytest.fixture(scope="package", autouse=True)
def ray_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """With a CPU each, so that each gets half of the processes."""
    checks_of(request.config).pool.close()  # the nodes would take the token of its Ray from the environment
    with ray_nodes([1, 1], forked=True) as started:
        yield started


@pytest.fixture(scope="package")
def address(ray_cluster: Any) -> str:
    return str(ray_cluster.address)
