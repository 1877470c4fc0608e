"""However a driver ends, nothing of its cluster stays: processes, directories with sockets, shared memory."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import started_processes

pytestmark = pytest.mark.cluster

DRIVER = """
import os, signal, sys, time
import numpy as np
from distxla.runtime.cluster import Cluster
from tests.runtime import hand_made

def main():
    with Cluster(2) as cluster:
        step = cluster.adopt(hand_made.{program}(2))
        cluster.wait_started()
        if os.environ.get("KILL_REPLICA"):
            os.kill(cluster.replicas_info[1][2], signal.SIGKILL)
        print("ready", flush=True)
        step({arguments})
        {then}

main()
"""

WAYS = {
    "success": ("add_one", "[np.ones(4, np.float32)]", "pass", None, 0),
    "error": ("add_one", "[np.ones(4, np.float32)]", "raise SystemExit(7)", None, 7),
    "exit without leaving": ("add_one", "[np.ones(4, np.float32)]", "os._exit(9)", None, 9),
    "ctrl-c": ("waiting", "", "pass", signal.SIGINT, None),
    "terminated": ("waiting", "", "pass", signal.SIGTERM, None),
    "killed": ("waiting", "", "pass", signal.SIGKILL, -signal.SIGKILL),
}
SUPERVISOR_KILLED = {  # whether the driver is killed right after it
    "supervisor killed": False,
    "supervisor and driver killed": True,
}


def directories() -> set[str]:
    return {path for path in glob.glob("/tmp/distxla-*") if os.stat(path).st_uid == os.getuid()}


@contextmanager
def running(tmp_path: Path, program: str, arguments: str, then: str) -> Iterator[subprocess.Popen[str]]:
    """A driver whose program is about to run; when it is left, nothing of it may be left within 5 seconds."""
    before = started_processes()
    shared = set(os.listdir("/dev/shm"))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(program=program, arguments=arguments, then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        yield driver
    finally:
        driver.kill()
    end = time.monotonic() + 5
    while time.monotonic() < end and (started_processes() - before or list(tmp_path.iterdir())):
        time.sleep(0.05)
    assert started_processes() - before == set()
    assert set(os.listdir("/dev/shm")) - shared == set()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left(way: str, tmp_path: Path) -> None:
    program, arguments, then, number, status = WAYS[way]
    with running(tmp_path, program, arguments, then) as driver:
        if number is not None:
            time.sleep(0.3)
            driver.send_signal(number)
        _, errors = driver.communicate(timeout=30)
    if status is None:
        assert driver.returncode != 0
    else:
        assert driver.returncode == status, errors
    if way == "success":
        assert errors == ""


@pytest.mark.parametrize("way", SUPERVISOR_KILLED)
def test_nothing_is_left_of_a_killed_supervisor(way: str, tmp_path: Path) -> None:
    with running(tmp_path, "waiting", "", "pass") as driver:
        (supervisor,) = (p for p in psutil.Process(driver.pid).children() if "supervisor.py" in " ".join(p.cmdline()))
        supervisor.kill()
        if SUPERVISOR_KILLED[way]:
            driver.kill()
        driver.communicate(timeout=30)
    assert driver.returncode != 0


def test_two_drivers_at_once_do_not_disturb_each_other() -> None:
    text = DRIVER.format(program="add_one", arguments="[np.ones(4, np.float32)]", then="time.sleep({})")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", text.format(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        for seconds in (0, 2)
    ]
    outcomes = [driver.communicate(timeout=60) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], outcomes
