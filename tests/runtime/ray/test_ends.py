"""The end of an embedded Ray whose processes have died, or whose answer was interrupted."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

import distxla as dx
from distxla.errors import ClusterError
from distxla.runtime.ray import access, commands, elsewhere, supervised, versions
from distxla.runtime.ray.embedded import EmbeddedRay
from distxla.runtime.ray.spawn import spawn_supervisor
from distxla.runtime.ray.supervisor import SIZE_BYTES, Requests
from tests.conftest import require_ended, started_processes
from tests.stopwatch import Stopwatch


def test_closing_leaves_nothing_of_a_supervisor_that_was_killed() -> None:
    ray = EmbeddedRay()
    ray._supervisor.process.kill()
    ray._supervisor.process.wait()
    with pytest.raises(ClusterError, match="supervisor"):
        ray._supervisor.hold("raylet")
    ray.close()
    assert not os.path.exists(ray._place.private)


def test_the_answer_of_an_interrupted_question_is_nobody_elses() -> None:
    """And the session goes on: other clusters share it."""
    here, there = socket.socketpair()
    interrupts = iter([KeyboardInterrupt()])

    def check() -> None:
        for interrupt in interrupts:
            raise interrupt

    session = elsewhere.RayElsewhere(here, check)
    with there:
        with pytest.raises(KeyboardInterrupt):
            session.nodes()
        assert elsewhere.receive(there) == ("nodes",)
        elsewhere.send(there, (None, ("node", [])))
        elsewhere.send(there, (None, (0, [])))
        assert session.answers([], []) == (0, [])
        session.close()
        assert [elsewhere.receive(there)[0]] == ["answers"]
        with pytest.raises(EOFError):
            elsewhere.receive(there)
    with pytest.raises(ClusterError, match="has ended"):
        session.nodes()


def test_a_question_ends_where_the_other_side_hangs_up() -> None:
    here, there = socket.socketpair()
    session = elsewhere.RayElsewhere(here, lambda: None)
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
step = cluster.adopt(hand_made.add_one(1))
step([[np.ones(4, np.float32)]])
ray.shutdown()
del step
gc.collect()
cluster._loader._unloader.close()
try:
    cluster.adopt(hand_made.add_one(1))([[np.ones(4, np.float32)]])
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
    """Ray's part in `elsewhere.serve`: values are their own references."""

    def put(self, value: Any) -> Any:
        return value

    def answers(self, pending: Sequence[Any], names: Sequence[str]) -> tuple[int, list[Any]]:
        return len(pending), list(pending)


def test_values_are_dropped_with_their_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "RayHere", Store)
    served = elsewhere._Served()
    here, there = socket.socketpair()
    session = elsewhere.RayElsewhere(here, lambda: None)

    def serve(count: int) -> None:
        for _ in range(count):
            kind, *arguments = elsewhere.receive(there)
            served.handle(kind, tuple(arguments))

    with here, there:
        kept, gone = session.put("kept"), session.put("gone")
        serve(2)
        assert list(served._found.values()) == ["kept", "gone"]
        del gone
        another = session.put("another")
        serve(2)
        assert list(served._found.values()) == ["kept", "another"]
        assert served.handle("answers", ([kept.number, another.number], [])) == (2, ["kept", "another"])


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
    with pytest.raises(ClusterError, match=r"did not start the raylet within 0.2 s"):
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
    ahead, closing = access._Ahead(spawn_supervisor()), threading.Event()
    threading.Timer(0.2, closing.set).start()
    watch = Stopwatch()
    with pytest.raises(ClusterError, match="the cluster is closed"):
        ahead.get(closing)
    assert watch.seconds < 5
    assert not os.path.exists(ahead._ray._place.private)


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
