"""A Ray cluster of several nodes on this machine, for runs with several hosts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def ray_nodes(cpus: Sequence[int]) -> Iterator[Any]:
    """Within, a Ray cluster runs whose nodes have these numbers of CPUs; this process is to join the first one.

    Gives Ray's own handle: `address`, `list_all_nodes()`, `add_node`, `remove_node`.
    """
    directory = tempfile.mkdtemp(dir="/tmp", prefix="n-")  # short: sockets have names in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", directory)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        import ray
        from ray.cluster_utils import Cluster

        first, *others = cpus
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": first, "include_dashboard": False})
        try:
            for count in others:
                started.add_node(num_cpus=count)
            started.wait_for_nodes()
            yield started
        finally:
            ray.shutdown()
            started.shutdown()
            shutil.rmtree(directory, ignore_errors=True)
