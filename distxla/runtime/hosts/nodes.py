"""Which Ray nodes hold how many devices of a run, and whether they can."""

from __future__ import annotations

import operator
import os
import platform
from collections.abc import Sequence
from functools import cache
from typing import Any

from distxla.collectives.protocols import control_block as control_words
from distxla.errors import ArgumentError, ClusterError
from distxla.ir.counts import Counts
from distxla.lazy_dataclass import dataclass
from distxla.machine.memory_limits import Limit, free_memory
from distxla.machine.packages import installed_version
from distxla.runtime.values.memory_need import Room
from distxla.targets.registry import host


@dataclass(frozen=True)
class Node:
    """A living node of the Ray cluster. address: of the interface that Ray reaches it by.  cpus, gpus: as Ray
    counts them."""

    id: str
    address: str
    name: str
    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Facts:
    """An agent's description of its node, to be compared with the driver's. room, free: for devices' memories."""

    name: str
    address: str
    pid: int
    version: str
    machine: str
    instructions: frozenset[str]
    room: Room
    free: Limit

    @staticmethod
    def here(address: str) -> Facts:
        """Those of this process."""
        return Facts(
            name=platform.node(),
            address=address,
            pid=os.getpid(),
            version=f"{_version()}, control block {control_words.VERSION}",
            machine=platform.machine(),
            instructions=host().instruction_sets(),
            room=Room.here(),
            free=free_memory(),
        )


def alive_nodes(mine: str, rows: list[dict[str, Any]]) -> list[Node]:
    """The driver's node, then the others by address; ClusterError where this process is on none of them.

    mine: the id of the driver's.  rows: as `ray.nodes` gives them.
    """
    found = [_node(row) for row in rows if row["Alive"]]
    own = [node for node in found if node.id == mine]
    if not own:
        raise ClusterError("the driver must run on a node of the Ray cluster; the node it has joined by is not alive")
    return own + sorted((node for node in found if node.id != mine), key=lambda node: (node.address, node.id))


def _node(row: dict[str, Any]) -> Node:
    return Node(
        row["NodeID"],
        row["NodeManagerAddress"],
        row.get("NodeManagerHostname") or row["NodeManagerAddress"],
        float(row["Resources"].get("CPU", 0.0)),
        float(row["Resources"].get("GPU", 0.0)),
    )


def checked_size(replicas: int, partitions: int) -> Counts:
    """The numbers of replicas and partitions of a run; ArgumentError where they can be none."""
    given = f"replicas={replicas!r}, partitions={partitions!r}"
    try:
        counts = Counts(operator.index(replicas), operator.index(partitions))
    except TypeError as error:
        raise ArgumentError(f"a cluster's counts are integers, found {given}") from error
    if counts.replicas < 1 or counts.partitions < 1:
        raise ArgumentError(f"a cluster needs at least one device, found {given}")
    if counts.devices > control_words.MOST_DEVICES:
        raise ArgumentError(f"a cluster has at most {control_words.MOST_DEVICES} devices, found {given}")
    return counts


def checked_counts(devices_per_host: Sequence[int] | None, devices: int) -> tuple[int, ...] | None:
    """The user's counts; None where they give none. ArgumentError where they are not valid."""
    if devices_per_host is None:
        return None
    counts = list(devices_per_host) if isinstance(devices_per_host, Sequence) else []
    if not counts or isinstance(devices_per_host, str) or not all(type(n) is int and n >= 0 for n in counts):
        raise ArgumentError(f"devices_per_host: expected a list of counts, found {devices_per_host!r}")
    if sum(counts) != devices:
        raise ArgumentError(f"devices_per_host: {counts} are {sum(counts)} devices, the cluster has {devices}")
    return tuple(counts)


def distribute(devices: int, rooms: Sequence[float], wanted: Sequence[int] | None = None) -> list[int]:
    """How many devices each node takes: contiguous blocks in the nodes' order, the driver's node first.

    rooms: for how many each has CPUs, or GPUs.  wanted: the user's counts.  By default all are on the first node if it
    has room for them; else every node takes what it has room for, in order; where all rooms together are too small,
    in proportion to them. Raises ClusterError where more nodes are wanted than there are.
    """
    if wanted is not None:
        if len(wanted) > len(rooms):
            raise ClusterError(
                f"devices_per_host names {len(wanted)} hosts, the Ray cluster has {len(rooms)} living "
                f"node{'s' if len(rooms) != 1 else ''}"
            )
        return list(wanted)
    room = [int(count) for count in rooms]
    if len(rooms) == 1 or room[0] >= devices or sum(room) == 0:
        return [devices]
    counts = []
    if sum(room) >= devices:
        left = devices
        for n in room:
            counts.append(min(n, left))
            left -= counts[-1]
    else:
        counts = [devices * n // sum(room) for n in room]
        by_remainder = sorted(range(len(room)), key=lambda i: (-(devices * room[i] % sum(room)), i))
        for i in by_remainder[: devices - sum(counts)]:
            counts[i] += 1
    while counts and not counts[-1]:
        counts.pop()
    return counts


def require_alike(mine: Facts, theirs: Facts, name: str) -> None:
    """ClusterError where programs that are compiled for `mine` can't run on `theirs`. name: of that host."""
    if theirs.version != mine.version:
        raise ClusterError(f"{name} has distxla {theirs.version}, the driver {mine.version}")
    if theirs.machine != mine.machine:
        raise ClusterError(f"{name} is {theirs.machine}, the driver {mine.machine}: programs are compiled for one type")
    missing = sorted(mine.instructions - theirs.instructions)
    if missing:
        raise ClusterError(
            f"the CPU of {name} lacks {', '.join(missing)}, which programs compiled on the driver's host may use"
        )


@cache
def _version() -> str:
    return installed_version("distxla") or "of unknown version"
