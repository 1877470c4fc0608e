"""Two JAX processes' ends of the streams of one owner's cluster, for tests: both in the owner's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import distxla as dx
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import DistxlaError
from distxla.jax.processes.attached_streams import AttachedStreams
from distxla.jax.processes.facts import AttachedMemory
from distxla.jax.processes.launches import Serving
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.machine.heap import Heap
from distxla.machine.segments import Segment
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.arrays.host_calls import BoundHostCall, never


class Attached:
    """The part of a JAX process that serves streams, with mappings and a heap of its own. stop: why its call should
    end."""

    def __init__(self, facts: AttachedMemory, devices: range) -> None:
        self.devices = devices
        self.control = ControlBlock.open(facts.owner, facts.control, facts.devices)
        common = facts.common, facts.memory_bytes
        self.memories = {
            device: Segment.open(facts.owner, facts.memories[device], facts.memory_bytes, common) for device in devices
        }
        self.heap = Heap(facts.device_bytes, (), begin=facts.device_bytes)
        allocate = partial(self.heap.allocate, of_runtime=True)
        self.streams = AttachedStreams(
            self.control, self.memories.__getitem__, allocate, lambda: None, lambda: self.stop
        )
        self.stop: DistxlaError | None = None
        self.calls: tuple[BoundHostCall, ...] = ()

    def close(self) -> None:
        self.streams.close()


class Together:
    """An owner's cluster of two devices, and the processes that have one each."""

    def __init__(self, cluster: OwnedCluster) -> None:
        self.cluster = cluster
        self.processes = [Attached(cluster.attached_memory(), range(k, k + 1)) for k in range(2)]
        self.serving: list[Serving] = []
        cluster.stop_reason = lambda members: self.failure()

    def failure(self) -> DistxlaError | None:
        return next((found for found in (one.failure for one in self.serving) if found), None)

    def load(self, text: str, functions: Mapping[Any, Callable[..., Any]], devices: Any = None) -> Executable:
        """A program whose functions are called in the processes; loaded."""
        made = self.cluster.compile(dx.parse(text), devices, host_calls=dict.fromkeys(functions, _not_here))
        sites = [call.site for call in made.host_calls]
        made.host_calls = ()
        for one in self.processes:
            one.calls = one.streams.bound(sites, functions, one.devices)
            facts = self.cluster.load(made, one.devices)
            one.streams.load(facts.number, made.program, facts.devices, facts.states)
        return made

    @contextmanager
    def during(self) -> Iterator[list[Serving]]:
        with ExitStack() as stack:
            given = [one.streams.during(one.devices, one.calls) for one in self.processes]
            self.serving = [stack.enter_context(one) for one in given]
            yield self.serving

    def run(self, executable: Executable, args: Any) -> Any:
        with self.during() as serving:
            outs = executable(args)
            for one in serving:
                assert one.finish(never)
        return outs

    def close(self) -> None:
        for one in self.processes:
            one.close()


def _not_here(*_: Any) -> Any:
    raise AssertionError("a function was called by the owner")
