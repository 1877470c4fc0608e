"""Clusters that stay open from test to test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distxla.compiler.server_share import ServerShare
from distxla.lazy_dataclass import dataclass
from distxla.machine.shortages import started_thread
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.calls.trace import Trace
from distxla.runtime.cluster import Cluster
from distxla.runtime.leftovers import end_by_force, why_unusable
from distxla.runtime.ray import access
from distxla.runtime.ray.session import Session
from distxla.runtime.values.interrupts import deferred_interrupt
from distxla.testing.holdings import Holdings

GRACE_S = 10.0  # for what a test began and left to itself
UNLOADING_S = 1.0  # for programs that nobody holds any more, which are unloaded in a thread


@dataclass(frozen=True)
class Size:
    """What tells one cluster from another: its counts, and the options of distxla.Cluster that were given."""

    replicas: int
    partitions: int | None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def is_shared(self) -> bool:
        """Injected faults happen once in a cluster's life: nobody else can use it."""
        return not dict(self.options).get("inject")

    def __str__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options)
        partitions = "" if self.partitions is None else f", partitions={self.partitions}"
        return f"replicas={self.replicas}{partitions}{options}"


def size_of(partitions: int | None = None, *, replicas: int = 1, **options: Any) -> Size:
    """The size that arguments of `make_cluster`, `lease` or of the mark `devices` name. ArgumentError for others."""
    Cluster(replicas, partitions, **options)  # refuses what it can't start
    found = [(name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(options.items())]
    return Size(replicas, partitions, tuple(found))


class PooledCluster(Cluster):
    """A cluster that the pool closes.

    Calls end after the pool's time limit, unless they have one of their own. Where the run is traced, so are the
    programs that it compiles.
    """

    def __init__(self, size: Size, limit: float | None, *, is_traced: bool) -> None:
        super().__init__(size.replicas, size.partitions, **dict(size.options))
        self._size, self._limit, self._is_traced = size, limit, is_traced
        self._recorded: Trace | None = None

    def compile(self, *args: Any, trace: bool = False, **options: Any) -> Executable:
        """See Cluster.compile."""
        return super().compile(*args, trace=trace or self._is_traced, **options)

    def issue(
        self,
        given: list[Executable],
        place: Callable[[list[Executable]], list[Any]],
        *,
        time_limit: float | None = None,
        repeat: int = 1,
    ) -> None:
        """See Cluster.issue."""
        super().issue(given, place, time_limit=self._limit if time_limit is None else time_limit, repeat=repeat)

    def trace(self) -> Trace:
        """See Cluster.trace. It takes the place of the run's own trace."""
        if self._recorded is not None and self._recorded.is_active:
            self._recorded.close()
        return super().trace()

    def begin_recording(self) -> None:
        self._recorded = super().trace() if self._is_traced else None

    def end_recording(self) -> Trace | None:
        found, self._recorded = self._recorded, None
        if found is not None and found.is_active:
            found.close()
        return found


class Use:
    """A cluster while a test or a fixture uses it. is_leased: by a with-body, which is not over.  has_failures: a test
    that ran meanwhile has failed, whose frames hold what it had.  is_busy: a call of it does not end."""

    def __init__(self, cluster: PooledCluster) -> None:
        self.cluster = cluster
        self.is_leased = False
        self.has_failures = False
        self.is_busy = False
        self.holdings = Holdings(cluster)


class _Ray:
    """The embedded Ray, held for clusters to come. Threads acquire and release it: no signal handler raises in them."""

    def __init__(self) -> None:
        self._closing = threading.Event()
        self._lock = threading.Lock()  # of the next two fields
        self._failure: BaseException | None = None
        self._session: Session | None = None  # where it has to be released

    def acquire(self) -> None:
        """Block until it has started; raises the ClusterError of its start. After an exception release it."""
        _in_thread(self._acquire)
        if self._failure is not None:
            raise self._failure

    def release(self) -> None:
        """Give it up; blocks until it is gone, where no cluster uses it. Twice is fine."""
        self._closing.set()
        _in_thread(self._release)

    @property
    def is_closing(self) -> bool:
        """Whether `release` has been called."""
        return self._closing.is_set()

    def _acquire(self) -> None:
        with self._lock:
            try:
                if not self._closing.is_set():
                    session, is_ours = access.acquire(access.WORKERS_AHEAD, None, self._closing)
                    self._session = session if is_ours else None
                    access.started()
            except BaseException as error:  # raised by `acquire`
                self._failure = error

    def _release(self) -> None:
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                access.release(session)


def _in_thread(step: Callable[[], None]) -> None:
    """Do it in a thread, which goes on where an interrupt ends the wait for it."""
    over = threading.Event()

    def run() -> None:
        step()
        over.set()

    started_thread(threading.Thread(target=run, name="distxla-pool", daemon=True), "Ray cannot be started or ended")
    while not over.wait(0.05):  # in slices: Ctrl-C
        pass


class ClusterPool:
    """Open clusters, each used by one test or fixture at a time; a Ray and a compile server that stay without any.

    idle: that many stay open while nobody uses them; of those that were used least recently the others are closed.
    limit: seconds of a call, None for no limit.  is_traced: record all calls.  uses: of clusters that are not idle.
    lines: what became of clusters that could not be kept, since they were last taken.

    A signal handler may raise at any line, as pytest's time limits do. A cluster that is neither idle nor in use then
    is closed before another one is taken.
    """

    def __init__(self, idle: int = 2, limit: float | None = None, *, is_traced: bool = False) -> None:
        self._most, self._limit, self._is_traced = idle, limit, is_traced
        self.idle: list[PooledCluster] = []  # the one that was used last at the end
        self.uses: list[Use] = []
        self.lines: list[str] = []
        self._open: list[PooledCluster] = []  # all that were begun and are not closed
        self._ray: _Ray | None = None
        self.compiler: ServerShare | None = None

    def take(self, size: Size) -> PooledCluster:
        """A started cluster that nobody else uses until the use is over. Blocks until its replicas serve; raises the
        errors of `Cluster.start`."""
        return self._begin(size).cluster

    @contextmanager
    def lease(self, partitions: int | None = None, *, replicas: int = 1, **options: Any) -> Iterator[PooledCluster]:
        """A cluster for the with-body, of a fixture with a wider scope than a test. Arguments as those of
        `make_cluster`."""
        use = self._begin(size_of(partitions, replicas=replicas, **options))
        use.is_leased = True
        try:
            yield use.cluster
        finally:
            use.is_leased = False

    def _begin(self, size: Size) -> Use:
        self._close_strays()
        cluster = self._reused(size) or self._started(size)
        use = Use(cluster)
        self.uses.append(use)
        cluster.begin_recording()
        return use

    @property
    def is_warm(self) -> bool:
        """Whether Ray, a cluster or the compile server is open."""
        return self._ray is not None or self.compiler is not None or bool(self.clusters)

    def warm(self) -> None:
        """Start the embedded Ray, which all clusters of this process without an address then use. Blocks; raises the
        ClusterError of `Cluster.start`. `close` ends it."""
        if self._ray is not None and self._ray.is_closing:  # an interrupt came while it was released
            self._release_ray()
        if self._ray is None:
            self._ray = _Ray()
            try:
                self._ray.acquire()
            except BaseException:
                self._release_ray()
                raise

    def _reused(self, size: Size) -> PooledCluster | None:
        while (found := next((c for c in reversed(self.idle) if c._size == size), None)) is not None:
            self.idle.remove(found)
            if not self._discarded(found, UNLOADING_S, "between two tests"):
                return found
        return None

    def _started(self, size: Size) -> PooledCluster:
        if dict(size.options).get("address") is None:
            self._close_all_but(self._most - 1)  # before another one takes memory
            self.warm()
        elif not self.uses:
            self.close()  # a process has one Ray
        self.compiler = self.compiler or ServerShare()
        cluster = PooledCluster(size, self._limit, is_traced=self._is_traced)
        self._open = [*self._open, cluster]
        try:
            cluster.start().wait_started()
        except BaseException:
            self._close(cluster)
            if not self.uses:
                self.close()  # Ray itself may have ended
            raise
        return cluster

    def over(self) -> list[Use]:
        """The uses that are over at the end of a test; the caller hands each to `put_back`."""
        return [use for use in self.uses if not use.is_leased]

    def put_back(self, use: Use) -> None:
        """Keep the cluster for others, or close it where it can't be used any more."""
        self.uses.remove(use)
        cluster = use.cluster
        if not cluster._size.is_shared:
            self._close(cluster)
        elif not self._discarded(cluster, 0.0 if use.is_busy else GRACE_S, "after the test"):
            self.idle.append(cluster)
            self._close_all_but(self._most)

    def _discarded(self, cluster: PooledCluster, seconds: float, when: str) -> bool:
        """Whether the cluster can't be used again: then it is closed, with a line."""
        if not (why := why_unusable(cluster, seconds)):
            return False
        self._end_by_force(cluster)
        self.lines.append(f"cluster {cluster._size}: closed {when}: {why}")
        return True

    def close_idle(self) -> None:
        """Close the clusters that nobody uses; Ray and the compile server stay. Blocks until they are gone."""
        self._close_all_but(0)

    def _close_all_but(self, count: int) -> None:
        while len(self.idle) > max(0, count):
            self._close(self.idle[0])
            del self.idle[0]

    def _close_strays(self) -> None:
        """Close the clusters that an interrupt has left, which are neither idle nor in use."""
        known = {id(cluster) for cluster in (*self.idle, *(use.cluster for use in self.uses))}
        for cluster in [cluster for cluster in self._open if id(cluster) not in known]:
            self._end_by_force(cluster)

    def _end_by_force(self, cluster: PooledCluster) -> None:
        end_by_force(cluster)
        self._close(cluster)

    def _close(self, cluster: PooledCluster) -> None:
        cluster.close()
        self._open = [other for other in self._open if other is not cluster]

    @property
    def clusters(self) -> list[PooledCluster]:
        """All open clusters of the pool."""
        return list(self._open)

    def close(self) -> None:
        """Close all clusters and Ray, and the compile server unless others share it; blocks until they are gone.

        The pool can be used again.
        """
        try:
            for use in self.uses:
                self._end_by_force(use.cluster)
            self.uses = []
            self._close_all_but(0)
            self._close_strays()
        finally:
            self._close_shared()

    @deferred_interrupt()
    def _close_shared(self) -> None:
        if self.compiler is not None:
            self.compiler.close()
            self.compiler = None
        self._release_ray()

    def _release_ray(self) -> None:
        if self._ray is not None:
            self._ray.release()
            self._ray = None
