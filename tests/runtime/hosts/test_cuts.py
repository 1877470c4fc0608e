"""A network that is cut amid a call: the host behind the cut is named, and nothing stays there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import psutil
import pytest

import distxla as dx
from distxla.runtime.cluster import Cluster
from tests.cut import cut, sockets_of
from tests.runtime import hand_made
from tests.runtime.hosts.faults_cases import COUNTS, DEVICES, agent_pid, pids
from tests.stopwatch import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def fresh(ray_cluster: Any) -> Iterator[Cluster]:
    with Cluster(DEVICES, address=ray_cluster.address, devices_per_host=COUNTS) as opened:
        opened.wait_started()
        yield opened


def cut_off(process: int, others: list[int]) -> None:
    """Nothing that these processes say reaches this one any more, and nothing that it says those."""
    ports = {one.laddr.port for other in others for one in psutil.Process(other).net_connections("tcp4")}
    with ExitStack() as stack:
        try:
            both = [stack.enter_context(sockets_of(one)) for one in (process, *others)]
        except PermissionError:
            pytest.skip("this user may not have the sockets of its processes (see ptrace_scope)")
        mine = {one.getsockname()[1] for one in both[0] if one.getpeername()[1] in ports}
        assert mine
        for sockets in both:
            for one in sockets:
                if {one.getsockname()[1], one.getpeername()[1]} & mine:
                    cut(one)


@pytest.mark.parametrize(
    ("others", "lost"),
    [
        ("all", r"host 1 \(.*\) with the devices 1 to 2 was lost during a call \(.* has not answered for"),
        ("an agent", r"the connection to host [12] was lost: .*its machine has not answered for"),
    ],
    ids=["whole", "between two"],
)
def test_the_host_behind_a_cut_is_named(fresh: Cluster, others: str, lost: str) -> None:
    step = hand_made.adopted(fresh, hand_made.waiting(DEVICES))
    agents = [agent_pid(fresh, index) for index in range(len(COUNTS))]
    theirs = [agents[1], pids(fresh)[1], pids(fresh)[2]]
    cut_off(agents[1], [os.getpid(), agents[0], agents[2]] if others == "all" else [agents[2]])
    with pytest.raises(dx.ReplicaLostError, match=lost):
        step()
    fresh.close()
    assert eventually(lambda: not any(map(psutil.pid_exists, theirs)))


def test_the_ports_and_the_address_that_hosts_use_can_be_chosen(ray_cluster: Any) -> None:
    network = "ports=41800-41839,interface=127.0.0.0/8,lost-after=7"
    with Cluster(2, address=ray_cluster.address, devices_per_host=[1, 1], network=network) as opened:
        opened.wait_started()
        for agent in opened.hosts.agents:
            host, port = agent.connection.socket.getpeername()
            assert (host, 41800 <= port < 41840) == ("127.0.0.1", True)
            assert agent.connection.answers is not None
            assert agent.connection.answers.seconds == 7
        assert hand_made.adopted(opened, hand_made.add_one(2))([np.zeros(4, np.float32)])


def test_an_interface_that_a_host_lacks_is_told_with_the_host(ray_cluster: Any) -> None:
    network = "interface=203.0.113.0/24"
    cluster = Cluster(2, address=ray_cluster.address, devices_per_host=[1, 1], network=network)
    with pytest.raises(dx.ClusterError, match=r"no interface of .* is 203\.0\.113\.0/24"), cluster as opened:
        opened.wait_started()
