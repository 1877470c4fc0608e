"""What test_faults.py shares with other tests."""

from __future__ import annotations

import threading
from typing import Any

import psutil

from distxla.runtime.cluster import Cluster

COUNTS = (1, 2, 1)

DEVICES = sum(COUNTS)


def later(seconds: float, action: Any, *arguments: Any) -> None:
    timer = threading.Timer(seconds, action, arguments)
    timer.daemon = True
    timer.start()


def pids(cluster: Cluster) -> dict[int, int]:
    return {device: pid for device, _, pid in cluster.replicas_info}


def agent_pid(cluster: Cluster, index: int) -> int:
    """The process at the other end of the driver's connection."""
    own = cluster.hosts.agents[index].connection.socket.getsockname()
    found = [c.pid for c in psutil.net_connections("tcp") if c.raddr and (c.raddr.ip, c.raddr.port) == own]
    owned = [pid for pid in found if pid is not None]  # an ended connection may have had the same port
    assert len(owned) == 1
    return owned[0]
