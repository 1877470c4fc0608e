"""The end of an embedded Ray whose processes have died, or whose answer was interrupted."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest

import distxla as dx
from distxla.errors import ClusterError
from distxla.runtime.ray import access, commands, driver_process, supervised, versions
from distxla.runtime.ray.embedded import EmbeddedRay
from distxla.runtime.ray.spawn import spawn_supervisor
from distxla.runtime.ray.supervisor import SIZE_BYTES, Requests
from tests.conftest import require_ended, started_processes
from tests.stopwatch import Stopwatch, eventually


def test_closing_leaves_nothing_of_a_supervisor_that_was_killed() -> None:
    ray = EmbeddedRay()
    ray.supervisor.process.kill()
    ray.supervisor.process.wait()
    with pytest.raises(ClusterError, match="supervisor"):
        ray.supervisor.hold("raylet")
    ray.close()
    assert not os.path.exists(ray.place.private)


def test_the_answer_of_an_interrupted_question_is_nobody_elses() -> None:
    """And the session goes on: other clusters share it."""
    here, there = socket.socketpair()
    interrupts = iter([KeyboardInterrupt()])

    def check() -> None:
        for interrupt in interrupts:
            raise interrupt

    session = driver_process.RayDriverProcess(here, check)
    with there:
        with pytest.raises(KeyboardInterrupt):
            session.nodes()
        first, *request = driver_process.receive(there)
        assert request == ["nodes"]
        driver_process.send(there, (first, None, ("node", [])))
        thread = threading.Thread(
            target=lambda: driver_process.send(there, (driver_process.receive(there)[0], None, (0, [])))
        )
        thread.start()
        assert session.answers([], []) == (0, [])
        thread.join()
        session.close()
        with pytest.raises(EOFError):
            driver_process.receive(there)
    with pytest.raises(ClusterError, match="has ended"):
        session.nodes()


def test_a_question_ends_where_the_other_side_hangs_up() -> None:
    here, there = socket.socketpair()
    session = driver_process.RayDriverProcess(here, lambda: None)
    threading.Timer(0.1, lambda: there.shutdown(socket.SHUT_RDWR)).start()
    with pytest.raises(ClusterError, match="has ended"):
        session.nodes()
    with pytest.raises(ClusterError, match="has ended"):
        session.put("late")
    session.close()
    there.close()


SHUT_DOWN = """
import gc, numpy as np, ray, distxla as dx
from distxla.errors import ClusterError
from tests.runtime import hand_made
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
cluster = dx.Cluster().start()
step = hand_made.adopted(cluster, hand_made.add_one(1))
step([[np.ones(4, np.float32)]])
ray.shutdown()
del step
gc.collect()
cluster.loader._unloader.close()
try:
    hand_made.adopted(cluster, hand_made.add_one(1))([[np.ones(4, np.float32)]])
except ClusterError as error:
    print(error.message)
cluster.close()
print(ray.is_initialized())
"""
SHUT_DOWN_SAYS = "Ray was shut down in this process: close the cluster, and open another one\nFalse\n"


@pytest.mark.exhaustive
def test_nothing_starts_a_ray_that_the_user_has_shut_down() -> None:
    """Not a destroyed executable's unloading, which nobody asked for, and no call, which says so."""
    done = subprocess.run([sys.executable, "-c", SHUT_DOWN], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == (SHUT_DOWN_SAYS, 0), done.stderr


class Store:
    """Ray's part in `driver_process.serve`: values are their own references; those named "bad" cannot be put."""

    def __init__(self) -> None:
        self.slow = threading.Event()

    def put(self, value: Any) -> Any:
        if value == "bad":
            raise ValueError("planned")
        return value

    def create(self, actor: type, node: str, rows: Sequence[Any], gpus: float) -> list[Any]:
        raise ClusterError("no actor")

    def answers(self, pending: Sequence[Any], names: Sequence[str]) -> tuple[int, list[Any]]:
        if "slow" in pending:
            assert self.slow.wait(20)
        return len(pending), list(pending)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store()
    monkeypatch.setattr(driver_process, "RayHere", lambda: found)
    return found


@pytest.fixture
def session(store: Store) -> Iterator[driver_process.RayDriverProcess]:
    """Another process's side in a thread."""
    here, there = socket.socketpair()
    thread = threading.Thread(target=driver_process.serve_requests, args=(there,))
    thread.start()
    made = driver_process.RayDriverProcess(here, lambda: None)
    yield made
    made.close()
    thread.join()
    there.close()


def test_values_are_dropped_with_their_references(store: Store) -> None:
    served = driver_process.Served()
    here, there = socket.socketpair()
    session = driver_process.RayDriverProcess(here, lambda: None)

    def serve(count: int) -> None:
        for _ in range(count):
            _, kind, *arguments = driver_process.receive(there)
            served.handle(kind, tuple(arguments))

    with there:
        kept, gone = session.put("kept"), session.put("gone")
        serve(2)
        assert list(served.found.values()) == ["kept", "gone"]
        del gone
        another = session.put("another")
        serve(2)
        assert list(served.found.values()) == ["kept", "another"]
        assert served.handle("answers", ([kept.number, another.number], []))() == (2, ["kept", "another"])
        session.close()


def test_no_request_waits_for_another_ones_actors(session: driver_process.RayDriverProcess, store: Store) -> None:
    slow, quick = session.put("slow"), session.put("quick")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(session.answers([slow], [])))
    thread.start()
    assert session.answers([quick], []) == (1, ["quick"])
    assert found == []
    store.slow.set()
    thread.join()
    assert found == [(1, ["slow"])]


def test_a_failure_is_told_to_those_who_ask_for_what_failed(session: driver_process.RayDriverProcess) -> None:
    """And to nobody else, whose cluster may be another one."""
    good, bad = session.put("good"), session.put("bad")
    (actor,) = session.create(Store, "node", [()])
    of_no_actor, of_bad = actor.put.remote("x"), actor.put.remote(bad)
    assert session.answers([good], []) == (1, ["good"])
    for reference, message in (
        (bad, "ValueError: planned"),
        (of_no_actor, "no actor"),
        (of_bad, "ValueError: planned"),
    ):
        for _ in range(2):
            with pytest.raises(ClusterError, match=message):
                session.answers([good, reference], [])
    session.kill([actor])
    assert session.answers([good], []) == (1, ["good"])


@pytest.mark.cluster
@pytest.mark.own_ray
def test_a_cluster_starts_where_the_ray_of_another_has_ended() -> None:
    """And is still open: it fails alone."""
    before = started_processes()
    with dx.Cluster(1) as first:
        first.wait_started()
        assert access.running is not None
        ended = access.running.ray
        assert isinstance(ended, EmbeddedRay)
        assert isinstance(ended.session, driver_process.RayDriverProcess)
        peer = ended.session.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        os.kill(struct.unpack("3i", peer)[0], signal.SIGKILL)
        assert eventually(lambda: not ended.is_alive)
        with dx.Cluster(1) as second, dx.Cluster(1) as third:
            assert len({second.replicas_info[0], third.replicas_info[0]}) == 2
            assert access.running.ray is not ended
            with pytest.raises(ClusterError, match="the process that speaks with Ray has ended"):
                first.resident_bytes()
        assert access.running is None
    assert not access.dead
    require_ended(before)


def test_a_supervisor_that_no_ray_needs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: "9.9.0")  # which `ray.init` starts
    process = spawn_supervisor()
    access.begin(process)
    assert process.returncode == 0


def test_requests_arrive_whole_in_pieces_of_any_size() -> None:
    wanted: list[dict[str, Any]] = [{"hold": True}, {"pid": 7, "command": ["a" * 300, ""], "environment": {"é": "\n"}}]
    packed = [marshal.dumps(request) for request in wanted]
    data = b"".join(len(one).to_bytes(SIZE_BYTES, "little") + one for one in packed)
    for size in (1, 2, 5, 64, len(data)):
        requests = Requests()
        assert [r for at in range(0, len(data), size) for r in requests.feed(data[at : at + size])] == wanted


def test_a_supervisor_that_does_not_answer_is_an_error_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "ANSWER_S", 0.2)
    monkeypatch.setattr(supervised, "CLOSE_S", 0.2)
    found = supervised.Supervised()
    os.kill(found.process.pid, signal.SIGSTOP)
    with pytest.raises(ClusterError, match=r"did not start the raylet within 0.2 s; load "):
        found.hold("raylet")
    found.close()
    assert found.process.returncode == -signal.SIGKILL
    assert not os.path.exists(found.directory)


@pytest.mark.cluster
def test_a_start_is_given_up_when_its_cluster_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the process itself, and where the command line has begun it before."""
    monkeypatch.setattr(commands, "gcs_command", lambda place: ["/bin/sleep", "60"])  # which never writes its port
    cluster = dx.Cluster(1).start()
    time.sleep(0.2)
    watch = Stopwatch()
    cluster.close()
    assert watch.seconds < 5
    ahead, closing = access.Ahead(spawn_supervisor()), threading.Event()
    threading.Timer(0.2, closing.set).start()
    watch = Stopwatch()
    with pytest.raises(ClusterError, match="the cluster is closed"):
        ahead.get(closing)
    assert watch.seconds < 5
    assert not os.path.exists(ahead.ray.place.private)


@pytest.mark.cluster
@pytest.mark.sampled(one_in=10)
@pytest.mark.parametrize("moment", range(1, 21))
def test_a_supervisor_that_is_killed_while_it_starts_leaves_nothing(moment: int) -> None:
    """Not the processes that wait for a server, either, of which it is the only one to know."""
    before = started_processes()
    cluster = dx.Cluster(2).start()
    time.sleep(0.05 * moment)
    for process in psutil.Process().children():
        if any(word.endswith("supervisor.py") for word in process.cmdline()):
            process.kill()
    with contextlib.suppress(ClusterError):
        cluster.wait_started()
    cluster.close()
    require_ended(before)
