"""The Ray that clusters of a process share, or join; a program's own is another one."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import distxla as dx
from distxla.errors import ClusterError
from distxla.runtime.calls.cluster_hosts import Hosts
from distxla.runtime.ray import access, machine
from distxla.runtime.ray.driver_process import RayDriverProcess
from distxla.runtime.ray.session import remote_class
from tests.runtime import hand_made

pytestmark = pytest.mark.cluster
BESIDE = """
import sys
import distxla as dx
with dx.Cluster(1) as cluster:
    cluster.wait_started()
    assert "ray" not in sys.modules
    import ray
    assert not ray.is_initialized()
    ray.shutdown()
    print(len(cluster.replicas_info))
"""


@pytest.mark.exhaustive
def test_a_programs_own_ray_is_not_the_clusters() -> None:
    ended = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


FORKED = """
import os
import numpy as np, distxla as dx
from tests.runtime import hand_made
X = np.zeros(4, np.float32)
with dx.Cluster(1) as cluster:
    step = hand_made.adopted(cluster, hand_made.add_one(1))
    step([X])
    child = os.fork()
    if child == 0:
        with dx.Cluster(1) as own:
            print(np.asarray(hand_made.adopted(own, hand_made.add_one(1))([X])[0][0])[0], flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(np.asarray(step([X])[0][0])[0])
    with dx.Cluster(1) as other:
        print(len(other.replicas_info))
"""


@pytest.mark.exhaustive
def test_a_forked_child_has_a_ray_of_its_own() -> None:
    ended = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("1.0\n1.0\n1\n", 0), ended.stderr


def test_ray_gets_one_class_for_an_actors() -> None:
    """For each new one Ray disassembles all methods, pickles it and sends it."""

    def remote(**_: Any) -> Any:
        return lambda actor: object()

    assert remote_class(Hosts, remote) is remote_class(Hosts, remote)


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
            access.join(f"127.0.0.1:{server.getsockname()[1]}")
        ended.set()
        thread.join()


def test_a_driver_on_a_machine_that_is_no_node_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would look for the node for a minute, and not say what it looks for."""
    monkeypatch.setattr(machine, "raylets", list)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(access.EMPTY_SETTINGS))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"no node of the Ray cluster at {address}.*`ray start --address="):
            access.join(address)
        thread.join()


def test_the_nodes_that_run_here_are_found_by_their_sockets(tmp_path: Path) -> None:
    ours, theirs, gone = (tmp_path / name / "sockets" / "raylet" for name in ("a", "ray/session_1", "gone"))
    for path in (ours, theirs):
        path.parent.mkdir(parents=True)
        path.touch()
    head = "Num       RefCount Protocol Flags    Type St Inode Path"
    rows = [f"0000000000000000: 00000002 00000000 00010000 0001 01 17 {path}" for path in (ours, gone, "/run/x.sock")]
    sockets = "\n".join([head, *rows, "0000000000000000: 00000002 00000000 00000000 0002 01 18"])
    assert machine.raylets(sockets, tmp_path / "ray") == [ours, theirs]
    assert machine.raylets("", tmp_path / "none") == []


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
    put, ask = RayDriverProcess.put, Hosts.ask

    def put_and_forget(session: RayDriverProcess, value: Any) -> Any:
        found = put(session, value)
        kept.clear()
        gc.collect()
        return found

    def first() -> None:
        with dx.Cluster(1) as cluster:
            cluster.wait_started()
            monkeypatch.setattr(Hosts, "ask", _failing)
            cluster.loader.load(hand_made.adopted(cluster, hand_made.add_one(1)))

    if at == "start":
        monkeypatch.setattr(Hosts, "ask", _failing)
    try:
        first()
    except ClusterError as error:
        kept.append(error)
    assert ["planned" in str(error) for error in kept] == [True]
    monkeypatch.setattr(Hosts, "ask", ask)
    monkeypatch.setattr(RayDriverProcess, "put", put_and_forget)
    with dx.Cluster(1) as cluster:
        ((result,),) = hand_made.adopted(cluster, hand_made.add_one(1))([np.zeros(4, np.float32)])
        assert np.asarray(result).tolist() == [1, 1, 1, 1]
