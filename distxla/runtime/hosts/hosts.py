"""All hosts of a run: their replicas are started through Ray, watched, and taken down again."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from distxla.errors import ClusterError, DistxlaError, ReplicaLostError
from distxla.runtime import embedded_ray
from distxla.runtime.hosts.host import DeviceMemory, Host
from distxla.runtime.hosts.local import LocalHost
from distxla.runtime.memory import memory_bytes
from distxla.runtime.replica import Identity, Replica
from distxla.runtime.serve import support_program

ATTACH_LIMIT_S = 120.0


class Hosts:
    """What `start` has begun, `close` takes down; both may be called in different threads, one after the other.

    closing: set by whoever wants `start` to give up.  replicas: actors by flattened id.  identities: who they are.
    memory_bytes: of each device's memory, the same on all hosts.
    """

    def __init__(self, replicas: int, partitions: int, address: str | None, closing: threading.Event) -> None:
        self._counts = (replicas, partitions)
        self._address = address
        self._closing = closing
        self._holds_ray = False
        self._local: LocalHost | None = None
        self.device_count = replicas * partitions
        self.memory_bytes = 0
        self.replicas: list[Any] = []
        self.identities: list[Identity] = []

    def start(self) -> None:
        """Join or start Ray, start the replicas, and give them their memories. Blocks until all of them serve."""
        self.memory_bytes = memory_bytes()
        name, devices = socket.gethostname(), range(self.device_count)
        self._local = LocalHost(0, name, devices, self.device_count, self.memory_bytes)
        self._holds_ray = embedded_ray.acquire(self.device_count, self._address)
        self._start_replicas(self._local)

    def _start_replicas(self, local: LocalHost) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=here)(Replica)
        self.replicas = [actor.remote(device) for device in range(self.device_count)]
        support = support_program()
        attachment, reference = local.attachment(*self._counts), ray.put(support)
        pending = [replica.attach.remote(attachment, reference) for replica in self.replicas]
        self.identities = self.ask(pending, ATTACH_LIMIT_S)
        local.begin(support, self.identities)

    @property
    def local(self) -> LocalHost:
        """The driver's host; ClusterError before it is started and after it is closed."""
        if self._local is None:
            raise ClusterError("the cluster is closed")
        return self._local

    @property
    def all(self) -> Sequence[Host]:
        """Every host, by index."""
        return [self.local]

    def memory(self, device: int) -> DeviceMemory:
        """A device's memory."""
        return self.local.memories[device]

    def ask(self, pending: list[Any], seconds: float) -> list[Any]:
        """Answers of actors; their errors as ours. Ends early when the cluster is closed."""
        import ray

        end = time.monotonic() + seconds
        try:
            while True:
                done, rest = ray.wait(pending, num_returns=len(pending), timeout=0.2)
                if not rest:
                    return list(ray.get(pending))
                if self._closing.is_set():
                    raise ClusterError("the cluster is closed")
                if time.monotonic() > end:
                    raise ClusterError(f"{len(rest)} of {len(pending)} replicas did not answer within {seconds:g} s")
                if done:
                    ray.get(done)  # raises an error at once, without waiting for the others
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, DistxlaError) else None
            raise cause or ClusterError(f"a replica failed: {error.cause}") from error
        except ray.exceptions.RayActorError as error:
            raise ReplicaLostError(f"a replica ended: {' '.join(str(error).split())[:500]}") from error

    def close(self) -> None:
        """Take everything down; blocks until it is gone. It may be interrupted and called again."""
        if self._local is not None and not self._local.lost:
            with contextlib.suppress(DistxlaError):
                self._local.stop()
        if self.replicas:
            import ray

            if ray.is_initialized():
                for replica in self.replicas:
                    with contextlib.suppress(ray.exceptions.RayError, ValueError):
                        ray.kill(replica)
        self.replicas = []
        if self._local is not None:
            self._local.close_processes()
        if self._holds_ray:
            self._holds_ray = False
            embedded_ray.release()
        if self._local is not None:
            self._local.close()
            self._local = None
