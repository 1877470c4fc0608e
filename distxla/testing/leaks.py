"""Processes, threads, files and clusters that a test leaves open. To look reads two folders of /proc."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress

from distxla import clock
from distxla.machine.processes import command_line, open_descriptors, opened_by, process_ids, status_fields
from distxla.runtime.leftovers import open_clusters
from distxla.testing.pool import GRACE_S, ClusterPool

# processes that live as long as this one, or as a cluster
_OWN_PROCESSES = (
    b"distxla.compiler.worker",
    b"distxla.jax.partitioner.partition_worker",
    b"distxla/runtime/ray/supervisor.py",
)
# those of Ray and of clusters: who left a cluster open is told that
_OF_CLUSTERS = ("/memfd:distxla-", "/tmp/distxla-", "/tmp/ray/", "/dev/", "/proc/", "/sys/")


class ProcessState:
    """What this process had open; `left` compares."""

    def __init__(self, pool: ClusterPool) -> None:
        self._pool = pool
        self._children, self._files, self._threads = _child_processes(), _open_files(), _running_threads()
        self._clusters = open_clusters()

    def left(self) -> list[str]:
        """Sentences about what was opened since; blocks up to GRACE_S for what is about to end. Clusters that were left
        open are closed."""
        known = {*self._clusters, *self._pool.clusters}
        forgotten = [cluster for cluster in open_clusters() if cluster not in known]
        found = [f"an open cluster: {cluster}" for cluster in forgotten]
        for cluster in forgotten:
            cluster.close()
        end, interval = clock.now() + GRACE_S, 0.02
        while (others := self._others()) and clock.now() < end:
            gc.collect()
            clock.sleep(interval)
            interval = min(2 * interval, 0.5)  # a collection takes a tenth of a second in a large process
        return found + others

    def _others(self) -> list[str]:
        children = _child_processes() - self._children
        return [
            *map(_described, sorted(children)),
            *sorted(_open_files() - self._files),
            *(f"thread {thread.name}" for thread in _running_threads() - self._threads),
        ]


def _child_processes() -> set[int]:
    """The ids of the living processes that this one started itself, without those of distxla."""
    found = set()
    for process in process_ids():
        with suppress(OSError):  # it ended meanwhile
            fields = status_fields(process)
            if fields[1] == str(os.getpid()) and fields[0] not in "ZX" and not _is_own(process):
                found.add(process)
    return found


def _is_own(process: int) -> bool:
    command = command_line(process)
    return any(name in command for name in _OWN_PROCESSES)


def _described(process: int) -> str:
    """`process 12 (sleep 100)`."""
    command = ""
    with suppress(OSError):
        command = command_line(process).replace(b"\0", b" ").decode(errors="replace").strip()
    return f"process {process} ({command[:80]})"


def _open_files() -> set[str]:
    """`descriptor 12, /path/of/file` of files and memory files. Sockets and pipes are left out: Ray opens and closes
    those as it likes. So are the standard streams, which pytest captures."""
    found = set()
    for number in open_descriptors() - {0, 1, 2}:
        with suppress(OSError):
            target = opened_by(number)
            if target.startswith("/") and not target.startswith(_OF_CLUSTERS):
                found.add(f"descriptor {number}, {target}")
    return found


def _running_threads() -> set[threading.Thread]:
    """Those that keep the process from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon}
