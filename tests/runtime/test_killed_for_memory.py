"""A cluster in a control group with little memory: arrays and programs that do not fit are refused, and the error says
so if the kernel kills a replica for want of memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distxla.machine.memory_limits import Group, groups_of
from distxla.machine.processes import ended_by
from distxla.runtime.hosts.process_ends import how_ended

LIMIT = 1 << 30


@pytest.fixture
def group() -> Iterator[Group]:
    """A group of 1 GiB below this process's, whose version may be either."""
    for above in groups_of()[:1]:
        folder = above.folder / f"distxla-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        made = Group(folder, folder.name, above.version)
        try:
            file = folder / ("memory.max" if above.version == 2 else "memory.limit_in_bytes")
            try:
                file.write_text(str(LIMIT))
            except OSError as error:
                pytest.skip(f"no control group can be given a limit here: {error}")
            yield made
        finally:
            _remove(folder)
        return
    pytest.skip("no control group limits memory here")


def _remove(folder: Path) -> None:
    for _ in range(100):
        try:
            return folder.rmdir()
        except OSError:  # processes that have just ended are still in it
            time.sleep(0.1)
    pytest.fail(f"{folder} holds {(folder / 'cgroup.procs').read_text()}")


PROGRAM = """
import os, sys
import numpy as np
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
import distxla as dx

def greedy(x):
    held = [np.ones(64 << 20, np.uint8) for _ in range(64)]
    return x + len(held)

dx.register_custom_call("greedy", greedy)
NAME = '''HloModule m

ENTRY e {
  x = f32[2] parameter(0)
  ROOT y = f32[2] %s
}
'''
with dx.Cluster(2) as cluster:
    twice = cluster.compile(dx.parse(NAME % "add(x, x)"))
    held = []
    try:
        for n in range(64):
            held.append(cluster.put(np.full(64 << 20, n, np.uint8), n % 2))
    except dx.OutOfMemoryError as error:
        print("put", n, error.message)
    try:
        cluster.compile(dx.parse(NAME.replace("f32[2]", "f32[100000000]") % "add(x, x)"))
    except dx.OutOfMemoryError as error:
        print("compile", error.message)
    del held
    print("result", np.asarray(twice([np.ones(2, np.float32)])[1][0]))
    step = cluster.compile(dx.parse(NAME % 'custom-call(x), custom_call_target="greedy"'))
    try:
        step([np.ones(2, np.float32)])
    except dx.ReplicaLostError as error:
        print("lost", error.message)
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_cluster_keeps_to_its_control_group(group: Group) -> None:
    command = [sys.executable, "-c", PROGRAM, str(group.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    put, compiled, result, lost = done.stdout.splitlines()
    found = re.fullmatch(
        r"put (\d+) device ([01]): 64 MiB more can't be had: this host has .* left \(the control group .*\), "
        r"and its devices hold (.*) MiB",
        put,
    )
    assert found is not None, put
    assert 4 <= int(found[1]) < 16
    assert int(found[2]) == int(found[1]) % 2
    assert re.search(r"its 2 devices on this host need 1.49 GiB; this host has .* left \(the control group", compiled)
    assert result == "result [2. 2.]"
    assert re.search(
        r"the replica of device [01] \(process \d+\) ended during a call( by SIGKILL, probably for want of memory: the "
        rf"kernel has killed for that in the control group .*{group.name})? in y",
        lost,
    ), lost
    kills = group.kills()
    assert kills is not None
    assert kills >= 1


@pytest.mark.parametrize("reaped", [False, True])
def test_a_process_that_has_ended_says_how(reaped: bool) -> None:
    for number in (0, 9, 15):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)" if number else ""])
        descriptor = os.pidfd_open(process.pid)
        if number:
            process.send_signal(number)
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
        if reaped:
            process.wait()
        found = ended_by(process.pid, descriptor)
        process.wait()
        os.close(descriptor)
        if reaped and found is None:
            pytest.skip("this kernel (before Linux 6.15) forgets the status of a process with its parent's wait")
        assert found == number


@pytest.mark.parametrize(
    ("number", "lacking", "text"),
    [
        (None, "", ""),
        (None, "this machine", ""),
        (0, "", ""),
        (9, "", "by SIGKILL"),
        (15, "this machine", "by SIGTERM"),
        (
            9,
            "the control group /job",
            "by SIGKILL, probably for want of memory: the kernel has killed for that in the control group /job",
        ),
        (63, "", "by signal 63"),
    ],
)
def test_the_words_for_an_end(number: int | None, lacking: str, text: str) -> None:
    assert how_ended(number, lacking, "") == text


def test_the_words_for_a_crash_in_python() -> None:
    assert how_ended(11, "", "; its Python was in f (m.py:3)") == "by SIGSEGV; its Python was in f (m.py:3)"
    assert how_ended(9, "", "; its Python was in f (m.py:3)") == "by SIGKILL"
