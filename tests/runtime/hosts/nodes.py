"""A Ray cluster of several nodes on this machine, for runs with several hosts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from distxla.runtime.ray import versions
from tests.runtime.hosts import worker
from tests.runtime.hosts.forks import forking


@contextmanager
def ray_nodes(cpus: Sequence[int], *, forked: bool = False) -> Iterator[Any]:
    """Within, a Ray cluster runs whose nodes have these numbers of CPUs; this process is to join the first one.

    forked: the nodes' workers are forks (forks.py) where the version of Ray is one whose workers can be; but for those
    of nodes that are added.
    Gives Ray's own handle: `address`, `list_all_nodes()`, `add_node`, `remove_node`.
    """
    directory = tempfile.mkdtemp(dir="/tmp", prefix="n-")  # short: sockets have names in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", directory)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        import ray
        from ray.cluster_utils import Cluster

        patch.setenv(worker.FOLDER, directory)
        is_forked = forked and versions.start_of(versions.installed()) is versions.Start.SERVERS
        ours = {"setup_worker_path": worker.__file__} if is_forked else {}
        first, *others = cpus
        head = {"num_cpus": first, "include_dashboard": False, "include_log_monitor": False, **ours}
        started = Cluster(initialize_head=True, head_node_args=head)
        try:
            for count in others:
                started.add_node(num_cpus=count, **ours)
            started.wait_for_nodes()
            nodes = started.list_all_nodes() if is_forked else []
            with forking([node.all_processes["raylet"][0].process.pid for node in nodes], directory):
                yield started
        finally:
            ray.shutdown()
            started.shutdown()
            shutil.rmtree(directory, ignore_errors=True)
