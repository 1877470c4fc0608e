"""However a driver ends, nothing of its cluster stays: processes, directories with sockets, shared memory."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import require_ended, shared_memory_names, started_processes

pytestmark = pytest.mark.cluster

DRIVER = """
import os, signal, sys, time
import numpy as np
from distxla.runtime.cluster import Cluster
from distxla.text.parser import parse_module
from tests.runtime import hand_made

def main():
    with Cluster(2) as cluster:
        if os.environ.get("COMPILE"):  # nothing that the cache on disk has, so that the compile process starts
            text = f"HloModule m{{os.getpid()}}\\nENTRY e {{{{ ROOT x = f32[2] parameter(0) }}}}"
            cluster.compile(parse_module(text))
        step = hand_made.adopted(cluster, hand_made.{program}(2))
        cluster.wait_started()
        cluster.loader.load(step)  # by calls of Ray, which itself ends a driver that asks a raylet that has gone
        if os.environ.get("KILL_REPLICA"):
            os.kill(cluster.replicas_info[1][2], signal.SIGKILL)
        print("ready", flush=True)
        step({arguments})
        {then}

main()
"""

ONES = "[np.ones(4, np.float32)]"
WAYS = {
    "success": ("add_one", ONES, "pass", None, 0),
    "error": ("add_one", ONES, "raise SystemExit(7)", None, 7),
    "exit without leaving": ("add_one", ONES, "os._exit(9)", None, 9),
    "ctrl-c": ("waiting", "", "pass", signal.SIGINT, None),
    "terminated": ("waiting", "", "pass", signal.SIGTERM, None),
    "killed": ("waiting", "", "pass", signal.SIGKILL, -signal.SIGKILL),
}
# words in the command lines of processes other than the driver
KINDS = {
    "supervisor": "supervisor.py",
    "gcs_server": "gcs/gcs_server",
    "raylet": "raylet/raylet ",
    "zygote": "zygote.py",
    "agent": "agent.sh",
    "an agent's cat": "cat",
    "replica": "ray::Replica",
    "compile process": "distxla.compiler.worker",
}
# processes that are killed at the same moment
KILLED = {name: (name,) for name in KINDS} | {
    "supervisor and driver": ("supervisor", "driver"),
    "raylet and driver": ("raylet", "driver"),
    "replicas, zygote and driver": ("replica", "zygote", "driver"),
    "all but the agents": ("driver", *(name for name in KINDS if "agent" not in name)),
}
GOES_ON = {"compile process", "zygote", "gcs_server", "an agent's cat"}  # a step needs none of them


def directories() -> set[str]:
    return {path for path in glob.glob("/tmp/distxla-*") if os.stat(path).st_uid == os.getuid()}


@contextmanager
def running(tmp_path: Path, program: str, arguments: str, then: str) -> Iterator[subprocess.Popen[str]]:
    """A driver whose program is about to run; when it is left, nothing of it may be left within 5 seconds."""
    before = started_processes()
    shared = shared_memory_names()
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
    require_ended(before, tmp_path)
    assert shared_memory_names() - shared == set()


@pytest.mark.sampled(one_in=6)
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


def of_kind(processes: list[psutil.Process], kind: str) -> list[psutil.Process]:
    def matches(process: psutil.Process) -> bool:
        try:
            text = " ".join(process.cmdline()) + " "
        except psutil.NoSuchProcess:
            return False
        return text.strip() == "cat" if kind == "an agent's cat" else KINDS[kind] in text

    return [process for process in processes if matches(process)]


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("way", KILLED)
def test_nothing_is_left_of_killed_processes(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILE", "1")
    with running(tmp_path, "waiting", "", "pass") as driver:
        children = psutil.Process(driver.pid).children(recursive=True)
        chosen = [of_kind(children, kind) for kind in KILLED[way] if kind != "driver"]
        assert all(chosen)
        for process in [process for found in chosen for process in found]:
            with contextlib.suppress(psutil.NoSuchProcess):  # it may have died with the one before
                process.kill()
        if "driver" in KILLED[way]:
            driver.kill()
        if way in GOES_ON:
            time.sleep(0.5)
            assert driver.poll() is None
            driver.send_signal(signal.SIGINT)
        _, errors = driver.communicate(timeout=30)
    assert driver.returncode != 0
    if "driver" not in KILLED[way] and way not in GOES_ON:
        assert re.search(r"distxla\.errors\.\w+Error: ", errors), errors


@pytest.mark.exhaustive
def test_two_drivers_at_once_do_not_disturb_each_other() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER.format(program="add_one", arguments=ONES, then=f"time.sleep({seconds})")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        for seconds in (0, 2)
    ]
    outcomes = [driver.communicate(timeout=60) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], outcomes
