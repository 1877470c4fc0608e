"""A program's own remote calls beside a cluster use the cluster's Ray."""

from __future__ import annotations

import subprocess
import sys

import pytest

import distxla as dx
from distxla.errors import ClusterError

pytestmark = pytest.mark.cluster
BESIDE = """
import distxla as dx
with dx.Cluster(1):
    import ray
    assert ray.is_initialized()
    @ray.remote(num_cpus=0)
    def address():
        return ray.get_runtime_context().gcs_address
    print(ray.get(address.remote()), ray.get_runtime_context().gcs_address)
assert not ray.is_initialized()
"""


def test_remote_calls_beside_a_cluster_go_to_its_ray() -> None:
    """Without a Ray in the process they would start one, or join any Ray of the machine."""
    ended = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    there, here = ended.stdout.split()
    assert there == here
    assert here.startswith("127.0.0.1:")


def test_entering_raises_what_went_wrong() -> None:
    cluster = dx.Cluster(1, address="127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"nothing answers at 127\.0\.0\.1:1"):
        cluster.__enter__()
    assert repr(cluster).endswith("closed")
