"""Processes, threads, files and clusters that a test leaves open. To look reads two folders of /proc."""

from __future__ import annotations

import gc

from distxla import clock
from distxla.runtime.leftovers import open_clusters
from distxla.testing.pool import GRACE_S, ClusterPool
from distxla.testing.resources import child_processes, described, open_files, running_threads


class ProcessState:
    """What this process had open; `left` compares."""

    def __init__(self, pool: ClusterPool) -> None:
        self._pool = pool
        self._children, self._files, self._threads = child_processes(), open_files(), running_threads()
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
        children = child_processes() - self._children
        return [
            *map(described, sorted(children)),
            *sorted(open_files() - self._files),
            *(f"thread {thread.name}" for thread in running_threads() - self._threads),
        ]
