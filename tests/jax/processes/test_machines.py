"""Which nodes of a Ray the processes are on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.errors import ArgumentError, ClusterError
from distxla.jax.processes.machines import Machines, shares
from distxla.jax.processes.owner_file import machine_of_process
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.world import Introduction, World
from distxla.runtime.hosts.nodes import Node
from distxla.runtime.hosts.users import Users

LOCAL, SECRET = 2, bytes(32)
ADDRESS = "10.0.0.1:6379"


def placed(cpus: list[int], processes: int, told: list[str] | None, wanted: tuple[int, ...] | None = None) -> Any:
    """(devices of each node that is used, the hosts of the processes by name), where nodes have so many CPUs.

    told: the machine of each process, "here" for that of the first node, else the index of one; None: a launcher places
    them.
    """
    nodes = [Node(f"id{k}", f"10.0.0.{k + 1}", f"n{k}", count) for k, count in enumerate(cpus)]
    keepers: Any = SimpleNamespace(keep=SimpleNamespace(remote=lambda *_: None))
    session = SimpleNamespace(create=lambda *_: [keepers], kill=lambda _: None)
    answers = [(str(k), f"/proc/{k}/fd/3") for k in range(1, len(nodes))]
    hosts: Any = SimpleNamespace(layout=None, session=session, ask=lambda *_: answers)
    cluster: Any = SimpleNamespace(hosts=hosts, has_failed=False, attached_memory=lambda devices: devices)
    settings = OwnerSettings(LOCAL, ADDRESS, processes_per_host=wanted)
    machines = Machines(cluster, World(0, processes, LOCAL), settings)
    with ThreadPoolExecutor() as pool:
        counts = pool.submit(hosts.layout, nodes)
        try:
            assert machines.listens_on() == "10.0.0.1"
            paths = machines.begin(("10.0.0.1", 1), SECRET, told is None)
            assert paths == ({} if told is None else dict(answers))
            given = [
                Introduction("", f"h{one}", 1, LOCAL, ADDRESS, machine=machine_of_process() if one == "here" else one)
                for one in (told or [])
            ]
            memories = machines.memories(given)
            assert memories == [range(LOCAL * k, LOCAL * k + LOCAL) for k in range(len(given))]
        finally:
            machines.close()
        devices = [(node.name, count) for node, count in counts.result()]
    return devices, [machines.name_of(process) for process in range(processes)]


def test_a_launcher_places_equally_many_on_each_node_that_has_processors() -> None:
    assert placed([4, 4], 3, None) == ([("n0", 4), ("n1", 2)], ["host 0 (n0)", "host 0 (n0)", "host 1 (n1)"])
    assert placed([0, 1, 9], 2, None) == ([("n0", 0), ("n1", 2), ("n2", 2)], ["host 1 (n1)", "host 2 (n2)"])
    assert placed([1, 1, 1], 1, None) == ([("n0", 2)], [""])
    assert placed([1, 1, 1], 3, None, (1, 0, 2))[0] == [("n0", 2), ("n2", 4)]
    assert [shares(5, 2), shares(1, 3)] == [[3, 2], [1, 0, 0]]


def test_processes_that_were_started_by_hand_are_where_they_are() -> None:
    names = ["host 0 (n0)", "host 1 (n2)", "host 1 (n2)", "host 2 (n1)"]
    assert placed([1, 1, 1], 4, ["here", "2", "2", "1"]) == ([("n0", 2), ("n2", 4), ("n1", 2)], names)


@pytest.mark.parametrize(
    ("told", "wanted", "said"),
    [
        (["here", "1", "here"], None, "process 2 and others before are on hhere"),
        (["here", "here", "9"], None, f"process 2 on h9: that is no node of the Ray cluster at {ADDRESS}"),
        (None, (1, 1), r"\[1, 1\] are 2 processes, not 3"),
        (None, (1, 1, 1), r"\[1, 1, 1\] are 3 hosts, the Ray cluster has 2"),
    ],
)
def test_places_that_there_are_not(told: list[str] | None, wanted: tuple[int, ...] | None, said: str) -> None:
    with pytest.raises((ClusterError, ArgumentError), match=said):
        placed([1, 1], 3, told, wanted)


def test_ends_of_processes_of_another_host() -> None:
    told: SimpleQueue[tuple[int, str, int | None]] = SimpleQueue()
    users = Users(lambda *one: told.put(one))
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    users.watch(3, sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)
    assert told.get(timeout=60) == (3, "SIGKILL", None)
    sleeper.wait()
    users.watch(4, sleeper.pid)
    assert told.get(timeout=60) == (4, "", None)
