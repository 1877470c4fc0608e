"""The plugin for pytest: options, fixtures, and reports at failures.

It is loaded in every run of pytest where distxla is installed, so it imports almost nothing: the pool of clusters and
the checks come with the first test that asks for a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from distxla.testing import unrewritten
from distxla.testing.sections import CLUSTERS

if TYPE_CHECKING:
    from distxla.testing.pool import ClusterPool, PooledCluster
    from distxla.testing.processes import Processes, ProcessPool

unrewritten.install()

MARK = (
    "devices(partitions, *, replicas=1, **options): the devices of the fixture `cluster`; devices(8) are 8 partitions, "
    "devices(replicas=2, partitions=4) as many in 2 replicas; options as those of distxla.Cluster"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("distxla")
    group.addoption(
        "--distxla-trace", metavar="DIR", help="write a trace of the calls of each test with a cluster into DIR"
    )
    parser.addini("distxla_idle_clusters", "clusters that stay open while no test uses them (2)", default="2")
    parser.addini("distxla_time_limit", "seconds of a call on a test's cluster, 0 for no limit (120)", default="120")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


@pytest.fixture(scope="session")
def cluster_pool(request: pytest.FixtureRequest) -> ClusterPool:
    """Open clusters for fixtures of wider scopes: `with cluster_pool.lease(partitions=8) as cluster:`."""
    from distxla.testing.session import checks_of

    return checks_of(request.config).pool


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> PooledCluster:
    """A cluster of the devices that the test's mark `devices` names; nobody else uses it during the test."""
    from distxla.testing.session import checks_of, marked_size

    return checks_of(request.config).take(marked_size(request.node))


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest) -> Callable[..., PooledCluster]:
    """`make_cluster(partitions=4, **options)`: another cluster at each call, for this test."""
    from distxla.testing.pool import size_of
    from distxla.testing.session import checks_of

    def make(partitions: int | None = None, *, replicas: int = 1, **options: Any) -> PooledCluster:
        return checks_of(request.config).take(size_of(partitions, replicas=replicas, **options))

    return make


@pytest.fixture(scope="session")
def distxla_process_pool() -> Generator[ProcessPool, None, None]:
    """JAX processes for fixtures of wider scopes: `distxla_process_pool.take(2, devices=4)`."""
    from distxla.testing.processes import ProcessPool

    pool = ProcessPool()
    yield pool
    pool.close()


@pytest.fixture
def distxla_processes(distxla_process_pool: ProcessPool) -> Callable[..., Processes]:
    """`distxla_processes(2, devices=4).run(function, *args)`: what the function returns in each of two JAX processes,
    which share distxla's devices and stay for later tests."""
    return distxla_process_pool.take


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure gets the diagnosis of its DistxlaError."""
    report = yield
    if call.excinfo is not None and "distxla.errors" in sys.modules and report.failed:
        from distxla.testing.attachments import attach

        attach(report, call.excinfo.value, item.config.getoption("--distxla-trace"))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each cluster that had to be replaced."""
    lines = [
        line
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "sections", ())
        if name.startswith(f"Captured {CLUSTERS}")
        for line in text.splitlines()
    ]
    if lines:
        terminalreporter.section(CLUSTERS)
        for line in lines:
            terminalreporter.line(line)
