"""The owner's cluster, whose devices' arrays belong to JAX processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from distxla.collectives.protocols import control_block as control_words
from distxla.errors import ClusterError, DistxlaError
from distxla.jax.processes.facts import AttachedMemory, LoadedFacts
from distxla.runtime.arrays.device_cluster import CallAreaWriter
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.calls.dispatch import Dispatcher
from distxla.runtime.calls.program_loading import ProgramLoader
from distxla.runtime.calls.unloading import Loaded
from distxla.runtime.checks.checks import begin_checks, end_checks
from distxla.runtime.cluster import Cluster
from distxla.runtime.hosts.remote import RemoteHost
from distxla.runtime.hosts.slice import Slice, Ticket
from distxla.runtime.streams.stream_states import StreamStates
from distxla.time_limit import phase

_AGAIN_S = 0.1  # until a program that still runs is unloaded


class OwnedCluster(Cluster):
    """The devices of each process are a slice (control_block.py), if all are on this machine: calls of processes that
    have none in common run at the same time. The devices of several machines are called one call after the other.

    stop_reason: asked, while a call of these processes is in flight or waits for devices, why it should end now; None
    while it should not.
    """

    stop_reason: Callable[[Sequence[int]], DistxlaError | None] = staticmethod(lambda members: None)

    def __init__(
        self,
        slices: Sequence[range],
        *,
        address: str | None = None,
        device_memory: int | str | None = None,
        backend: str = "cpu",
    ) -> None:
        """slices: the devices of each process."""
        self._slices = tuple(slices)
        self._loading = threading.RLock()  # held while a program is loaded or unloaded; taken behind those of slices
        devices = sum(map(len, slices))
        super().__init__(partitions=devices, address=address, device_memory=device_memory, backend=backend)

    @property
    def has_failed(self) -> bool:
        """Whether `wait_started` would raise an error by now."""
        return self._failure is not None

    def watch_hosts(self, ended: Callable[[int, str, int | None], None]) -> None:
        """ended: told of the end of each process of `watch_user`: see hosts/users.py."""
        for remote in self.hosts.remotes:
            remote.on_user_end = ended

    def watch_user(self, process: int, pid: int, devices: range) -> None:
        """A process of another host uses these devices."""
        self._remote_of(devices).watch(process, pid)

    def _remote_of(self, devices: range) -> RemoteHost:
        return next(remote for remote in self.hosts.remotes if devices.start in remote.devices)

    def attached_memory(self, devices: range = range(1)) -> AttachedMemory:
        """Where a JAX process finds the memories of its devices, all of one host; blocks until they serve."""
        self.wait_started()
        hosts, promises = self.hosts, self.hosts.promises
        assert promises is not None
        index = next(k for k, there in enumerate(hosts.devices) if devices.start in there)
        found = hosts.attachments[index] if index else hosts.local.attachment()
        memories = tuple(descriptor for descriptor in found.memories if descriptor is not None)
        return AttachedMemory(
            owner=found.owner,
            control=found.control,
            memories=memories,
            common=found.common,
            memory_bytes=found.memory_bytes,
            device_bytes=self.hosts.budget.part_bytes,
            devices=self.devices,
            promised=promises.place,
            slices=tuple(part.offset for part in hosts.local.slices) if self._has_slices else (0,) * len(self._slices),
            is_owner_here=index == 0,
            first=hosts.devices[index].start,
            owner_host=hosts.local.name if len(hosts.all) > 1 else "",
        )

    # --- programs

    def load(self, executable: Executable, devices: range) -> LoadedFacts:
        """Have a program loaded on its devices, unless it is; blocks, but not for calls. devices: whose rows of the
        call area are told."""
        loader = self._loader()
        self._load(loader, executable)
        assert executable.number is not None
        number, count = executable.number, len(executable.parameters) + len(executable.results)
        begin = loader.loaded[number].calls.offset
        rows = [(device, begin + 8 * count * row) for row, device in enumerate(executable.devices)]
        here = [(device, offset) for device, offset in rows if device in devices]
        mine = tuple(device for device, _ in here)
        return LoadedFacts(
            number, mine, tuple(offset for _, offset in here), executable.load_s, self._states(executable, mine)
        )

    def _load(self, loader: ProgramLoader, executable: Executable) -> None:
        if executable.number is None:
            with self._loading:
                if executable.number is None:  # still
                    loader.load(executable)

    def _unload(self, loaded: Loaded) -> None:
        """Waits for no calls but the program's own that are not over, in whichever process; no more come."""
        loader = self.loader
        if loader is None or self._closing.is_set():
            return
        if self.is_in_use(loaded):
            self._closing.wait(_AGAIN_S)
            loader.unload_later(loaded)
            return
        with self._loading:
            loader.unload(loaded)

    def is_in_use(self, loaded: Loaded) -> bool:
        """Whether a device has a command to run the program: one that is issued, perhaps not started, or not over."""
        control = self.hosts.local.control
        return any(
            control.record(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN
            and control.record(device, control_words.R_COMMAND_PROGRAM) == loaded.number
            for device in loaded.devices
        )

    def _states(self, executable: Executable, devices: tuple[int, ...]) -> tuple[tuple[int, str, int], ...]:
        streams = self._loader().streams
        assert isinstance(streams, StreamStates)
        return tuple(streams.places(executable.program, devices))

    # --- calls

    def issue(
        self, given: list[Executable], place: CallAreaWriter, *, time_limit: float | None = None, repeat: int = 1
    ) -> None:
        """See Cluster: no process issues anything meanwhile."""
        self.issue_on(range(len(self._slices)), given, place, time_limit=time_limit, repeat=repeat)

    def issue_on(
        self,
        members: Sequence[int],
        given: list[Executable],
        place: CallAreaWriter,
        *,
        time_limit: float | None = None,
        repeat: int = 1,
    ) -> None:
        """As `issue`, for programs whose devices are those of these processes, which issue nothing meanwhile. Blocks;
        calls of other processes run at the same time. ClusterError, and what the call raises."""
        with self._calling(members) as dispatcher:
            loader = self._loader()
            dispatcher.settle(time_limit)
            with phase("loading programs"):
                for executable in given:
                    self._load(loader, executable)
            loader.channels.connect([(one.number or 0, one.program, one.devices) for one in given])
            loader.communicators.await_others()
            kept = place(given)
            begin_checks(given, self.memory)
            try:
                numbers = {d: one.number or 0 for one in given for d in one.devices}
                seconds = dispatcher.call(numbers, repeat, time_limit)
            except BaseException:
                dispatcher.keep(*given, *kept)
                raise
            for executable in given:
                executable.run_s = seconds
                executable.device_s = dispatcher.device_seconds(executable.devices)
            end_checks(given, self.memory)

    def take_over(
        self, parts: Mapping[int, tuple[int, int]], devices: Sequence[int], kept: Sequence[object] = ()
    ) -> None:
        """Wait for a call in flight that processes have issued themselves, or start it where nobody has yet; raises as
        `issue_on`. The processes are held.

        parts: by process the command's sequence and the count of calls done that ends it, of those that are not beyond
        it; `stop_reason` is asked for these.  devices: of the program.  kept: what the call uses, held until devices
        are back that still compute when it has failed. ClusterError where devices are on several machines.
        """
        members = sorted(parts)
        slices = {process: self._slice(process) for process in members}
        mine = {process: [d for d in devices if d in part.devices] for process, part in slices.items()}

        with self._calling(members) as dispatcher:

            def take() -> None:
                for process, part in slices.items():
                    part.take(Ticket(*parts[process]), mine[process])
                dispatcher.start()
                for part in slices.values():
                    part.wake()

            try:
                dispatcher.resume([device for found in mine.values() for device in found], take)
            except BaseException:
                dispatcher.keep(*kept)
                raise

    def settle(self, members: Sequence[int]) -> None:
        """Block until the devices of these processes are back that still computed when a call of theirs had failed; no
        process may issue a call before. Raises what `stop_reason` says: then they are ended by force."""
        with self._calling(members) as dispatcher:
            dispatcher.settle(None)

    def hold(self, process: int) -> None:
        """The process issues no further call natively until `let_go`; what it has issued is in its log when this
        returns. Twice is fine."""
        self._slice(process).hold()

    def let_go(self, process: int) -> None:
        """The process may issue calls."""
        self._slice(process).let_go()

    def is_held(self, process: int) -> bool:
        return self._slice(process).is_held

    def withdraw(self, process: int) -> None:
        """Take back the commands of a call that the process has issued and that will never start; it is held, or has
        ended."""
        self._slice(process).withdraw_unstarted()

    def unusable(self) -> DistxlaError | None:
        """Why no call can run any more, as where a replica has ended; None while some can."""
        if self.loader is None:
            return ClusterError("the cluster is closed")
        return self.loader.dispatcher.unusable()

    @contextmanager
    def _calling(self, members: Sequence[int]) -> Iterator[Dispatcher]:
        """The dispatcher of these processes, while nobody else calls their devices."""
        dispatcher = self._loader().dispatchers.of(members)
        with dispatcher.lock:
            self._loader()  # unless it was closed meanwhile
            dispatcher.stop_reason = lambda: self.stop_reason(members)
            yield dispatcher

    def _take_down(self) -> None:
        self._closing.set()
        if (loader := self.loader) is not None:
            with loader.dispatchers.all.lock, self._loading:  # what has begun ends, and nothing begins any more
                pass
        super()._take_down()

    def _slice(self, process: int) -> Slice:
        if not self._has_slices:
            raise ClusterError("devices of several machines are called by their owner only")
        return self.hosts.local.slices[process]

    @property
    def _has_slices(self) -> bool:
        """Whether the devices of each process have calls of their own."""
        return len(self.hosts.local.slices) == len(self._slices)

    def _loader(self) -> ProgramLoader:
        if self.loader is None:
            self.wait_started()
        if self.loader is None or self._closing.is_set():
            raise ClusterError("the cluster is closed")
        return self.loader


__all__ = ["OwnedCluster"]
