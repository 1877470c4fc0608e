"""An embedded Ray is joined without a look at other processes of the machine, and left without waiting."""

from __future__ import annotations

import ctypes
import os
import signal
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import distxla as dx
from distxla.runtime.ray import client
from tests.runtime.ray.shut_down import SHUT_DOWN, SHUT_DOWN_SAYS
from tests.stopwatch import Stopwatch

ROOT = Path(__file__).parents[3]
POLL_S = 0.25  # for which a thread of Ray's client waits while a call is pending
MODULE = "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
LOOK = """
import ray._private.services as services
def look(*_):
    raise AssertionError("all processes are looked at")
services.psutil.process_iter = look
"""
JOINED = f"""{LOOK}
import distxla as dx
if __name__ == "__main__":
    with dx.Cluster(1) as cluster:
        cluster.wait_started()
    print("closed")
"""


@pytest.mark.parametrize("before", [signal.SIG_DFL, lambda *_: None], ids=["default", "a handler"])
def test_a_handler_that_ray_sets_for_sigterm_goes(before: Any) -> None:
    former = signal.signal(signal.SIGTERM, before)
    try:
        with client.same_end():
            signal.signal(signal.SIGTERM, lambda *_: None)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, former)


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_no_process_of_the_machine_is_looked_at() -> None:
    """Ray would search all of them for its raylet: 0.2 ms each."""
    ended = subprocess.run([sys.executable, "-c", JOINED], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("closed\n", 0), ended.stderr


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param("-m distxla run {module}", "", marks=pytest.mark.exhaustive, id="command"),
        pytest.param(f"-c '{JOINED}'", "closed\n", marks=pytest.mark.exhaustive, id="joined"),
        pytest.param(f"-c '{LOOK}{SHUT_DOWN}'", SHUT_DOWN_SAYS, id="shut down"),  # it compiles nothing
    ],
)
def test_under_uv_workers_get_no_environment_of_their_own(command: str, said: str, tmp_path: Path) -> None:
    """Ray would have its agent make one, and there is no agent."""
    (tmp_path / "module.hlo").write_text(MODULE)
    whole = command.replace("{module}", str(tmp_path / "module.hlo"))
    (tmp_path / "run").write_text(f'"$PYTHON" {whole}\nended=$?\nexit $ended\n')
    ended = subprocess.run(
        ["uv", "run"],  # a shell that is called so, which reads the file `run`
        executable="/bin/sh",
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_closing_does_not_wait_for_pending_calls() -> None:
    seconds = []
    for _ in range(3):
        cluster = dx.Cluster(1).start()
        cluster.wait_started()
        watch = Stopwatch()
        cluster.close()
        seconds.append(watch.seconds)
    assert statistics.median(seconds) < POLL_S


def named_thread(name: str, end: threading.Event) -> threading.Thread:
    started = threading.Event()

    def run() -> None:
        ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME
        started.set()
        end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    return thread


def test_what_follows_threads_waits_for_all_of_them() -> None:
    ends, called = [threading.Event(), threading.Event()], threading.Event()
    threads = [named_thread("an example", end) for end in ends]
    with client._when_threads_have_ended("an example", called.set):
        ends[0].set()
        threads[0].join()
        assert not called.wait(10 * client._LOOK_S)
        ends[1].set()
        assert called.wait(10)


def test_without_such_threads_nothing_follows() -> None:
    called = threading.Event()
    with client._when_threads_have_ended("an example", called.set):
        assert not called.wait(10 * client._LOOK_S)
    end = threading.Event()
    thread = named_thread("an example", end)
    with client._when_threads_have_ended("an example", called.set):
        pass
    end.set()
    thread.join()
    assert not called.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "distxla-leave"]
