"""Replicas, agents and whole nodes that go away, and calls that are ended, in runs with several hosts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import distxla as dx
from distxla.program.abi import Status
from distxla.runtime.cluster import Cluster
from tests.conftest import started_processes
from tests.interrupted import interrupted_after
from tests.runtime import hand_made
from tests.runtime.hosts.faults_cases import COUNTS, DEVICES, agent_pid, later, pids
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def cluster(ray_cluster: Any) -> Iterator[Cluster]:
    """For tests after which it can still be used."""
    with Cluster(DEVICES, address=ray_cluster.address, devices_per_host=COUNTS) as opened:
        opened.wait_started()
        yield opened


@pytest.fixture
def fresh(ray_cluster: Any) -> Iterator[Cluster]:
    """For a test that breaks it."""
    with Cluster(DEVICES, address=ray_cluster.address, devices_per_host=COUNTS) as opened:
        opened.wait_started()
        yield opened


def still_works(cluster: Cluster) -> bool:
    outs = hand_made.adopted(cluster, hand_made.add_one(DEVICES))([X])
    return all(np.array_equal(np.asarray(row[0]), X + 1) for row in outs)


def _runs(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ended_within(processes: list[int], seconds: float) -> bool:
    watch = Stopwatch()
    while any(_runs(p) for p in processes):
        if watch.seconds > seconds:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.exhaustive
@pytest.mark.parametrize("device", range(DEVICES))
def test_a_failing_program_releases_its_peers_on_all_hosts(cluster: Cluster, device: int) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES, failing=device, status=Status.FAILED))
    watch = Stopwatch()
    with pytest.raises(dx.ExecutionError, match=f"hand-made failed on device {device} with status 3"):
        step()
    assert watch.seconds < 1
    assert still_works(cluster)


def test_time_limit_releases_waiters_on_all_hosts(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES))
    assert still_works(cluster)
    for devices, computing in ((range(DEVICES), "devices 0-3 compute"), ([3], "device 3 computes")):
        part = hand_made.adopted(cluster, step.program, devices)
        watch = Stopwatch()
        with pytest.raises(dx.TimeLimitError, match=rf"the time limit of 0\.3 s ran out\n  {computing}$"):
            part(time_limit=0.3)
        assert watch.seconds < 1.3
        assert still_works(cluster)


def test_ctrl_c_ends_the_call_on_all_hosts(cluster: Cluster) -> None:
    step = hand_made.adopted(cluster, hand_made.waiting(DEVICES))
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(0.5, step)
    assert still_works(cluster)
    part = hand_made.adopted(cluster, step.program, [2])  # the driver waits for another host alone
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(0.5, part)
    assert still_works(cluster)


def test_ctrl_c_amid_a_frame_does_not_lose_the_host(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert still_works(cluster)
    remote = cluster.hosts.agents[1]
    send_parts = remote.connection.send_parts
    sent: list[bytes] = []

    def interrupted(parts: Any, **options: Any) -> Any:
        whole = b"".join(parts)
        send_parts([whole[:5]], **options)
        sent.append(whole)
        if len(sent) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return send_parts([whole[5:]], **options)

    monkeypatch.setattr(remote.connection, "send_parts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remote.control_read(0, 64)
    assert len(sent) == 1
    assert len(remote.control_read(0, 64)) == 64
    assert still_works(cluster)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("device", [0, 2])
def test_a_killed_replica_is_named_with_its_host(fresh: Cluster, device: int) -> None:
    step = hand_made.adopted(fresh, hand_made.waiting(DEVICES))
    pid = pids(fresh)[device]
    assert fresh.loader is not None
    fresh.loader.load(step)
    later(0.5, os.kill, pid, signal.SIGKILL)
    watch = Stopwatch()
    name = rf"the replica of device {device} \(process {pid} on host {device and 1} \(.*\)\)"
    with pytest.raises(dx.ReplicaLostError, match=f"{name} ended during a call"):
        step()
    assert watch.seconds < 0.5 + 1.5
    ended = rf"{name} has ended( \(by SIGKILL\))?; the cluster cannot be used any more"
    with pytest.raises(dx.ReplicaLostError, match=ended):
        step()


@pytest.mark.exhaustive
def test_a_replica_lost_between_calls_is_noticed(fresh: Cluster) -> None:
    step = hand_made.adopted(fresh, hand_made.add_one(DEVICES))
    step([X])
    os.kill(pids(fresh)[3], signal.SIGKILL)
    time.sleep(0.3)
    with pytest.raises(dx.ReplicaLostError, match=r"device 3 \(process .* on host 2 "):
        step([X])


@pytest.mark.exhaustive
def test_a_program_that_never_ends_is_killed_after_the_time_limit(fresh: Cluster) -> None:
    step = hand_made.adopted(fresh, hand_made.endless(DEVICES))
    watch = Stopwatch()
    with pytest.raises(dx.TimeLimitError):
        step(time_limit=0.2)
    assert watch.seconds < 10
    with pytest.raises(dx.ReplicaLostError):
        step()


def test_a_killed_agent_takes_its_host_with_it(fresh: Cluster) -> None:
    outs = hand_made.adopted(fresh, hand_made.add_one(DEVICES))([X])
    step = hand_made.adopted(fresh, hand_made.waiting(DEVICES))
    theirs = [pids(fresh)[1], pids(fresh)[2]]
    later(0.5, os.kill, agent_pid(fresh, 1), signal.SIGKILL)
    watch = Stopwatch()
    with pytest.raises(dx.ReplicaLostError, match=r"host 1 \(.*\) with the devices 1 to 2 was lost during a call"):
        step()
    assert watch.seconds < 0.5 + 1.5
    assert ended_within(theirs, 1)
    with pytest.raises(dx.ReplicaLostError, match="cannot be used any more"):
        step()
    with pytest.raises(dx.ReplicaLostError, match=r"host 1 \(.*\) can't be reached any more"):
        np.asarray(outs[1][0])
    assert np.array_equal(np.asarray(outs[3][0]), X + 1), "the others can still be reached"


@pytest.mark.exhaustive
def test_the_proxy_of_the_drivers_host_may_be_lost(fresh: Cluster) -> None:
    step = hand_made.adopted(fresh, hand_made.waiting(DEVICES))
    later(0.5, os.kill, agent_pid(fresh, 0), signal.SIGKILL)
    with pytest.raises(dx.ReplicaLostError, match=r"the proxy of host 0 \(.*\) was lost"):
        step()


def listening(processes: list[int]) -> set[tuple[str, int]]:
    """Where these processes accept connections on other than Ray's behalf."""
    found = {c.laddr for p in processes for c in psutil.Process(p).net_connections() if c.status == psutil.CONN_LISTEN}
    return {(a.ip, a.port) for a in found}


def test_nothing_is_left_running_or_listening(ray_cluster: Any) -> None:
    with Cluster(2, address=ray_cluster.address, devices_per_host=[1, 1]) as opened:
        hand_made.adopted(opened, hand_made.add_one(2))([X])
        agents = [agent_pid(opened, 0), agent_pid(opened, 1)]
        processes = [*pids(opened).values(), *agents]
        of_ray = listening([pids(opened)[0]])  # a worker of Ray listens, and a replica is nothing else
        assert all(len(listening([agent])) == len(of_ray) for agent in agents), "nobody is accepted any more"
        addresses = [agent.connection.socket.getpeername() for agent in opened.hosts.agents]
        for address in addresses:
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(address, 2)
    assert ended_within(processes, 2)


def test_strangers_are_sent_away() -> None:
    """While an agent waits for the driver, who doesn't know the secret gets nothing."""
    from distxla.runtime.hosts import commands
    from distxla.wire.handshake import Listener, new_secret

    accepted: list[Any] = []
    listener = Listener("127.0.0.1", new_secret(), accepted.append, frames=commands.DRIVER_FRAMES, node=1)
    try:
        with socket.create_connection(listener.address, 2) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(200))
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1000) == b""
        assert not accepted
    finally:
        listener.close()


def test_a_driver_that_is_killed_leaves_nothing(ray_cluster: Any) -> None:
    import subprocess
    import sys

    code = f"""
import time
from distxla.runtime.cluster import Cluster
from tests.runtime import hand_made
with Cluster(2, address={ray_cluster.address!r}, devices_per_host=[1, 1]) as cluster:
    print(*(pid for _, _, pid in cluster.replicas_info), flush=True)
    hand_made.adopted(cluster, hand_made.waiting(2))()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert driver.stdout is not None
        replicas = [int(pid) for pid in driver.stdout.readline().split()]
        time.sleep(0.5)
    finally:
        driver.kill()
        driver.communicate()
    assert len(replicas) == 2
    assert ended_within(replicas, 5)


@pytest.mark.exhaustive
def test_a_node_without_distxla_is_named(ray_cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "distxla":
            raise ModuleNotFoundError("No module named 'distxla'", name="distxla")
sys.meta_path.insert(0, Refusing())
"""
    )
    node = ray_cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path)})
    try:
        with (
            pytest.raises(dx.ClusterError, match=r"host [123] \(.*\) has no distxla of this version"),
            Cluster(4, address=ray_cluster.address, devices_per_host=[1, 1, 1, 1]) as opened,
        ):
            opened.wait_started()
    finally:
        ray_cluster.remove_node(node)
        ray_cluster.wait_for_nodes()


@pytest.mark.exhaustive
def test_a_lost_node_is_named(ray_cluster: Any) -> None:
    node = ray_cluster.add_node(num_cpus=2)
    before = started_processes()
    with Cluster(4, address=ray_cluster.address, devices_per_host=[1, 1, 1, 1]) as opened:
        opened.wait_started()
        index = next(i for i, n in enumerate(_node_ids(opened)) if n == node.node_id)
        step = hand_made.adopted(opened, hand_made.waiting(4))
        later(0.5, ray_cluster.remove_node, node, False)
        watch = Stopwatch()
        lost = rf"device {index} .*on host {index} |host {index} \(.*\) with device {index} was lost"
        with pytest.raises(dx.ReplicaLostError, match=lost):
            step()
        assert watch.seconds < 0.5 + 3
    end = time.monotonic() + 30
    while started_processes() - before and time.monotonic() < end:
        time.sleep(0.1)
    assert not {p for p in started_processes() - before if "Agent" in p or "Replica" in p}
    ray_cluster.wait_for_nodes()


def _node_ids(cluster: Cluster) -> list[str]:
    import ray

    where = ray.get([replica.node.remote() for replica in cluster.hosts.replicas])
    return [where[devices.start] for devices in cluster.hosts.devices]
