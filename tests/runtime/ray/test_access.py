"""A program's own remote calls beside a cluster use the cluster's Ray."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
from typing import Any, NoReturn

import numpy as np
import pytest

import distxla as dx
from distxla.errors import ClusterError
from distxla.runtime.cluster_hosts import Hosts
from distxla.runtime.ray import access
from distxla.runtime.ray.session import RayHere
from tests.runtime import hand_made

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


@pytest.mark.exhaustive
def test_remote_calls_beside_a_cluster_go_to_its_ray() -> None:
    """Without a Ray in the process they would start one, or join any Ray of the machine."""
    ended = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    there, here = ended.stdout.split()
    assert there == here
    assert here.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.0 400 Bad Request\r\n", "no Ray is at"),
        (b"", "no Ray is at|nothing answers at .*: .*reset"),
        (None, "nothing answers at .*: timed out"),
    ],
)
def test_what_is_no_ray_is_not_joined(answer: bytes | None, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try for ever, and take no interrupt meanwhile."""
    monkeypatch.setattr(access, "ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                if answer is None:
                    ended.wait(10)
                else:
                    connection.sendall(answer)

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ClusterError, match=error):
            access._join(f"127.0.0.1:{server.getsockname()[1]}")
        ended.set()
        thread.join()


def test_entering_raises_what_went_wrong() -> None:
    cluster = dx.Cluster(1, address="127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"nothing answers at 127\.0\.0\.1:1"):
        cluster.__enter__()
    assert repr(cluster).endswith("closed")


def _failing(*_: Any) -> NoReturn:
    raise ClusterError("planned")


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("at", ["start", "load"])
def test_an_error_that_outlives_its_ray_takes_nothing_from_the_next_one(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error's frames die after the next cluster has put the value of the same id into Ray's store."""
    kept: list[BaseException] = []
    put, ask = RayHere.put, Hosts.ask

    def put_and_forget(session: RayHere, value: Any) -> Any:
        found = put(session, value)
        kept.clear()
        gc.collect()
        return found

    def first() -> None:
        with dx.Cluster(1) as cluster:
            cluster.wait_started()
            monkeypatch.setattr(Hosts, "ask", _failing)
            cluster._loader.load(cluster.adopt(hand_made.add_one(1)))

    if at == "start":
        monkeypatch.setattr(Hosts, "ask", _failing)
    try:
        first()
    except ClusterError as error:
        kept.append(error)
    assert ["planned" in str(error) for error in kept] == [True]
    monkeypatch.setattr(Hosts, "ask", ask)
    monkeypatch.setattr(RayHere, "put", put_and_forget)
    with dx.Cluster(1) as cluster:
        ((result,),) = cluster.adopt(hand_made.add_one(1))([np.zeros(4, np.float32)])
        assert np.asarray(result).tolist() == [1, 1, 1, 1]
