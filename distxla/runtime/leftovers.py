"""Values that a cluster still holds for its user, and whether another one can go on with it: for distxla.testing."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from distxla import clock
from distxla.errors import DistxlaError, TimeLimitError
from distxla.machine.processes import is_ending
from distxla.runtime import cluster as clusters
from distxla.runtime.arrays.columns import Column
from distxla.runtime.arrays.device_array import DeviceArray

if TYPE_CHECKING:
    from distxla.runtime.arrays.executable import Executable
    from distxla.runtime.cluster import Cluster


def open_clusters() -> list[Cluster]:
    """The clusters of this process that were started and not closed."""
    return list(clusters._open)


def value_bytes(cluster: Cluster) -> int:
    """Bytes of each device's memory that arguments, results and views of them hold."""
    return cluster.heap.value_bytes


def value_offsets(cluster: Cluster) -> frozenset[int]:
    """Where in each device's memory those bytes are."""
    return cluster.heap.value_offsets


def living_executables(cluster: Cluster) -> list[Executable]:
    """The executables of the cluster that were called and that somebody still holds."""
    loader = cluster.loader
    return [] if loader is None else loader.living()


def living_arrays(cluster: Cluster, without: frozenset[int]) -> list[DeviceArray | Column]:
    """The cluster's arrays that somebody still holds, but for those at some offsets. Looks at every object of the
    process: tens of milliseconds."""
    found = []
    for each in gc.get_objects():
        if (type(each) is DeviceArray or type(each) is Column) and (block := each._block) is not None:
            found += [each] if cluster.heap.holds(block) and block.offset not in without else []
    return found


def is_free(cluster: Cluster, seconds: float) -> bool:
    """Whether no call is under way; blocks up to `seconds` for those that are."""
    end = clock.now() + seconds
    while cluster.queue.is_busy:
        if clock.now() >= end:
            return False
        clock.sleep(0.001)
    if not cluster._lock.acquire(timeout=max(0.0, end - clock.now())):
        return False
    cluster._lock.release()
    return True


def why_unusable(cluster: Cluster, seconds: float) -> str:
    """Why nobody should go on with the cluster, as a sentence; "" if nothing is wrong.

    Blocks at most about `seconds`, for calls of other threads and for devices that still compute after a failed call.
    """
    if cluster._closing.is_set():
        return "it was closed"
    if not is_free(cluster, seconds):
        return "a call does not end"
    cluster.queue.take_unseen()
    cluster._lock.acquire()
    try:
        loader = cluster.loader
        if loader is None:
            return "it was closed"
        if (error := loader.dispatcher.unusable()) is not None:
            return error.message.partition("; the cluster")[0]
        if stopped := sorted(cluster.hosts._stopped_here()):
            return f"device {stopped[0]} is stopped"
        here = cluster.hosts.devices[0]
        if ending := [one.device for one in cluster.hosts.identities if one.device in here and is_ending(one.pid)]:
            return f"the replica of device {ending[0]} has ended"
        try:
            loader.dispatcher.settle(seconds)
        except TimeLimitError:
            return "devices of a call that failed still compute"
        return "its feeds were used" if loader.streams._states else ""
    finally:
        cluster._lock.release()


def end_by_force(cluster: Cluster) -> None:
    """Close a cluster in which a call may be under way: its replicas on this host are killed first."""
    with suppress(DistxlaError):
        for _, _, pid in cluster.replicas_info:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with suppress(DistxlaError):  # of the call that is ended here
        cluster.close()
