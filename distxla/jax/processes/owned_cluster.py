"""The owner's cluster, whose devices' arrays belong to JAX processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distxla.errors import ClusterError, DistxlaError
from distxla.jax.processes.facts import AttachedMemory, LoadedFacts
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.calls.program_loading import ProgramLoader
from distxla.runtime.cluster import Cluster
from distxla.runtime.streams.stream_states import StreamStates


class OwnedCluster(Cluster):
    """stop_reason: why the call in flight should end now; None while it should not."""

    _values_apart = True
    stop_reason: Callable[[], DistxlaError | None] = staticmethod(lambda: None)

    def __init__(
        self,
        slices: Sequence[range],
        *,
        address: str | None = None,
        device_memory: int | str | None = None,
        backend: str = "cpu",
    ) -> None:
        """slices: the devices of each process."""
        devices = sum(map(len, slices))
        super().__init__(partitions=devices, address=address, device_memory=device_memory, backend=backend)
        self._slices = tuple(slices)

    def _start(self) -> None:
        super()._start()
        if self.loader is not None:
            self.loader.dispatcher.stop_reason = lambda: self.stop_reason()

    def attached_memory(self) -> AttachedMemory:
        """Where a JAX process finds the devices' memories; blocks until they serve. ClusterError where some are on
        another machine."""
        self.wait_started()
        local, promises = self.hosts.local, self.hosts.promises
        assert promises is not None
        if len(self.hosts.all) > 1:
            raise ClusterError("JAX processes can't share devices of several machines yet")
        found = local.attachment()
        memories = tuple(-1 if descriptor is None else descriptor for descriptor in found.memories)
        return AttachedMemory(
            owner=found.owner,
            control=found.control,
            memories=memories,
            common=found.common,
            memory_bytes=found.memory_bytes,
            device_bytes=self.hosts.budget.part_bytes,
            devices=self.devices,
            promised=promises.place,
            slices=(0,) * len(self._slices),
        )

    def load(self, executable: Executable, devices: range) -> LoadedFacts:
        """Have a program loaded on its devices, unless it is; blocks. devices: whose rows of the call area are told."""
        with self._lock:
            loader = self._loader()
            if executable.number is None:
                loader.dispatcher.settle(None)
                loader.load(executable)
            assert executable.number is not None
            number, count = executable.number, len(executable.parameters) + len(executable.results)
            begin = loader.loaded[number].calls.offset
            rows = [(device, begin + 8 * count * row) for row, device in enumerate(executable.devices)]
            here = [(device, offset) for device, offset in rows if device in devices]
            mine = tuple(device for device, _ in here)
            return LoadedFacts(
                number, mine, tuple(offset for _, offset in here), executable.load_s, self._states(executable, mine)
            )

    def is_unusable(self) -> bool:
        """Whether no call can run any more: a replica has ended."""
        return self.loader is None or self.loader.dispatcher.unusable() is not None

    def _states(self, executable: Executable, devices: tuple[int, ...]) -> tuple[tuple[int, str, int], ...]:
        streams = self._loader().streams
        assert isinstance(streams, StreamStates)
        return tuple(streams.places(executable.program, devices))

    def _loader(self) -> ProgramLoader:
        if self.loader is None:
            self.wait_started()
        if self.loader is None:
            raise ClusterError("the cluster is closed")
        return self.loader


__all__ = ["OwnedCluster"]
