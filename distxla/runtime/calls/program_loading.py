"""Giving programs their places and loading them on their devices."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.collectives.protocols import call_loops
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import stream as stream_words
from distxla.errors import ArgumentError, ClusterError, DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.stream_key import StreamKey
from distxla.machine.heap import Block, Heap
from distxla.program.artifact import CompiledProgram, DebugTables, SharedArena
from distxla.rewrites.executed_form import executed_form
from distxla.runtime.calls.cluster_hosts import ATTACH_LIMIT_S, Hosts
from distxla.runtime.calls.dispatchers import Dispatchers
from distxla.runtime.calls.unloading import Loaded, Unloader
from distxla.runtime.groups.channel_connections import ClusterChannels
from distxla.runtime.groups.communicators import Communicators
from distxla.runtime.hosts.stream_memory import RemoteStreamMemory
from distxla.runtime.ray.session import SharedValue
from distxla.runtime.replica.replica import Placement
from distxla.runtime.replica.user_functions import RoutineFailure, pack
from distxla.runtime.streams.stream_ends import LocalStreamMemory, StreamMemory
from distxla.runtime.streams.stream_states import StreamStates
from distxla.runtime.streams.streams import ClusterStreams
from distxla.runtime.values.shared_image import without_image

if TYPE_CHECKING:
    from distxla.runtime.arrays.executable import Executable
    from distxla.runtime.calls.fault_injection import Injection


UNLOAD_S = 2.0  # for replicas to unload a program; a stopped one does it later


class ProgramLoader:
    """The programs on a run's devices. dispatchers: call them.  dispatcher: calls all of them.  communicators: state of
    all programs' communicators.  streams: to and from the host.  channels: between devices.

    A signal handler may raise at any line of `load`: the executable then has all that a loaded one has, or nothing.
    """

    def __init__(self, hosts: Hosts, heap: Heap, counts: Counts, unload: Callable[[Loaded], None]) -> None:
        """unload: called in a thread of its own with a program whose executable was destroyed."""
        self._hosts = hosts
        self.heap = heap
        self._counts = counts
        self._arena: Block | None = None
        size = hosts.budget.segment_bytes
        self._common = Heap(size, hosts.common_pages, begin=size, headroom=hosts.headroom(common=True))
        self._shared: dict[tuple[int, frozenset[int]], Block] = {}  # by number of the arena and group
        self._next = 0  # the number to try first for the next program
        self.loaded: dict[int, Loaded] = {}  # by number
        self._unloader = Unloader(unload)
        allocate = partial(heap.allocate, of_runtime=True)
        kind = StreamStates if hosts.values_apart else ClusterStreams
        self.streams: ClusterStreams = kind(self._new_state, allocate, self._stream_memory, self._unusable)
        self.communicators = Communicators(hosts.local.control, self.streams, hosts.remotes)
        control = hosts.local.control
        self.channels = ClusterChannels(self.communicators, control, allocate, counts, hosts.devices)
        self.dispatchers = Dispatchers(hosts, self.communicators, self.streams, self._routine_failure)
        self.dispatcher = self.dispatchers.all

    def living(self) -> list[Executable]:
        """The executables whose programs are loaded and that somebody still holds."""
        return self._unloader.living()

    def inject(self, injection: Injection, executables: Sequence[Executable]) -> None:
        """Send the cluster's faults to its devices, once, before any program is loaded. Blocks until they have them.

        ArgumentError for a host that there is not.
        """
        faults = injection.prepare(executables, self._hosts.devices)
        pending = [self._hosts.replicas[device].inject.remote(mine) for device, mine in faults.items()]
        if pending:
            self._hosts.ask(pending, ATTACH_LIMIT_S)

    def load(self, executable: Executable) -> None:
        """Give the program its places and load it on its devices; once. Blocks until they have it.

        It is unloaded when the executable goes. ArgumentError where it was compiled for other counts, or a routine of
        its custom-calls can't be had there.
        """
        begin = clock.now()
        program, block = executable.program, self._hosts.local.control
        wanted, found = self._counts, program.counts
        if program.assignment is None and found != wanted:
            raise ArgumentError(
                f"{program.name} was compiled for {found.replicas} x {found.partitions} devices, "
                f"the cluster has {wanted.replicas} x {wanted.partitions}"
            )
        number = self._free_number()
        size = 8 * max(1, len(executable.parameters) + len(executable.results)) * len(executable.devices)
        loaded = self.loaded[number] = Loaded(number, program, executable.devices, block.allocate(size), size)
        try:
            arena, shared, call_area = self._load(executable, number, loaded.calls.offset)
            self._unloader.watch(executable, loaded)
            executable.load_s = clock.now() - begin
            # what follows calls nothing: no handler runs within
            executable.arena, executable.shared, executable.call_area, executable.number = (
                arena,
                shared,
                call_area,
                number,
            )
        except BaseException:
            self._give_up(loaded)
            raise

    def _give_up(self, loaded: Loaded) -> None:
        """Unload a program that could not be loaded: now, so that another one has its memory."""
        try:
            with contextlib.suppress(DistxlaError):  # what went wrong is told, not what followed
                self.unload(loaded)
        except BaseException:
            self._unloader.unload_later(loaded)
            raise

    def _load(
        self, executable: Executable, number: int, area: int
    ) -> tuple[Block, list[dict[int, Block]], NDArray[np.uint64]]:
        """What the executable is to have. area: where the offsets of arguments and results are in the control block."""
        program, block = executable.program, self._hosts.local.control
        count = len(executable.parameters) + len(executable.results)
        if self._arena is None or self._arena.size < program.arena_bytes:
            # programs never run at once on one device
            self._arena = self.heap.allocate(program.arena_bytes, executable.devices, of_runtime=True)
        packed = pack(executable.targets) if executable.targets else None
        for_agents = dataclasses.replace(program, debug=DebugTables()) if self._hosts.agent_actors else None
        self.streams.load(number, program, executable.devices)
        self._tell_hosts(number, program)
        shared = [self._shared_arena(number, arena, executable) for number, arena in enumerate(program.shared)]
        placements = {
            device: Placement(
                number,
                self._arena.offset,
                begins := area + 8 * count * row,
                begins + 8 * len(executable.parameters),
                tuple(self.communicators.place(spec, device, number) for spec in program.communicators),
                tuple(blocks[device].offset if device in blocks else 0 for blocks in shared),
            )
            for row, device in enumerate(executable.devices)
        }
        session = self._hosts.session
        with (
            SharedValue(session, without_image(program)) as light,
            SharedValue(session, for_agents) as whole,
            SharedValue(session, packed) as routines,
            self._hosts.shared_image(program, whole) as images,
        ):
            pending = []
            for image, devices in zip(images, self._hosts.devices):
                pending += [
                    self._hosts.replicas[device].load.remote(
                        light.reference, image, placements[device], routines.reference
                    )
                    for device in devices
                    if device in placements
                ]
            for agent, devices in zip(self._hosts.agent_actors, self._hosts.devices):
                if places := {d: placements[d].communicators for d in devices if d in placements}:
                    pending.append(agent.load.remote(number, whole.reference, places))
            self._hosts.ask(pending, ATTACH_LIMIT_S)
        words = np.frombuffer(block.segment.bytes, np.uint64)
        call_area = words[area // 8 : area // 8 + count * len(executable.devices)].reshape(
            len(executable.devices), count
        )
        for remote in self._hosts.remotes:
            theirs = [row for row, device in enumerate(executable.devices) if device in remote.devices]
            remote.place(number, [(area + 8 * count * row, 8 * count) for row in theirs])
        self.dispatchers.programs[number] = program
        if executable.module is not None:
            self.dispatchers.modules[number] = executed_form(executable.module)
        return self._arena, shared, call_area

    def unload(self, loaded: Loaded) -> None:
        """Free all that a program has, here and on its devices, while none of these runs it; once.

        Blocks until proxies have done so, and for replicas at most UNLOAD_S: they use nothing of it any more, and obey
        requests in order. Devices that have ended, or can't be reached, are skipped. After an interrupt another call
        does the rest.
        """
        number = loaded.number
        if self.loaded.get(number) is not loaded:
            return
        gone = {device for remote in self._hosts.remotes for device in remote.lost}  # they may still be in its code
        there = [device for device in loaded.devices if device not in gone]
        replicas = [self._hosts.replicas[device].unload.remote(number) for device in there]
        proxies = [agent.unload.remote(number) for agent in self._hosts.agent_actors]
        for pending, seconds in ((proxies, ATTACH_LIMIT_S), (replicas, UNLOAD_S)):
            with contextlib.suppress(DistxlaError):
                self._hosts.ask(pending, seconds)
        self.dispatchers.forget(number)
        self.channels.forget(number)
        self.streams.forget(number)
        self.communicators.forget(number)
        self.communicators.zero(loaded.calls.offset, loaded.calls_bytes)
        for remote in self._hosts.remotes:
            remote.forget(number)
        del self.loaded[number]  # from here on nothing is done twice
        loaded.calls.free()

    def unload_later(self, loaded: Loaded) -> None:
        """Unload a program a while later; its last executable has gone."""
        self._unloader.unload_later(loaded)

    def close(self) -> None:
        """To be called when the cluster is closed: unload nothing any more, and end waits at streams."""
        self._unloader.close()
        self.streams.close()

    def _free_number(self) -> int:
        """The number of the next program. Numbers are reused as late as possible, since reports name past programs."""
        for _ in range(call_loops.MOST_PROGRAMS):
            number, self._next = self._next, (self._next + 1) % call_loops.MOST_PROGRAMS
            if number not in self.loaded and not self.streams.holds(number):
                return number
        raise ClusterError(
            f"{call_loops.MOST_PROGRAMS} programs are loaded, and a cluster takes no more: compile a module once and "
            "call that again, or delete executables that are not needed any more"
        )

    def _tell_hosts(self, number: int, program: CompiledProgram) -> None:
        """Write into the states of groups that live on several hosts how many members each host has."""
        hosts = self._hosts.devices
        for spec in program.communicators if len(hosts) > 1 else ():
            for group in spec.groups if spec.stream is None and not spec.pairs else ():
                local = [sum(device in devices for device in group) for devices in hosts]
                offset = self.communicators.place(spec, group[0], number)
                if max(local) < len(group) and offset is not None:
                    for index, count in enumerate(local):
                        self.communicators.configure_host(index, offset + group_words.G_LOCAL, count, int(count > 0))

    def _shared_arena(self, number: int, arena: SharedArena, executable: Executable) -> dict[int, Block]:
        """Where a group has the program's shared arena, by device. Programs never run at once on one device, so they
        share the memory; a group that runs several programs at once has none."""
        found = {}
        for group in arena.groups:
            if len(group) > 1 and set(group) <= set(executable.devices):
                key = (number, frozenset(group))
                block = self._shared.get(key)
                if block is None or block.size < arena.bytes:
                    block = self._shared[key] = self._common.allocate(arena.bytes)
                found.update(dict.fromkeys(group, block))
        return found

    def _new_state(self, device: int, key: StreamKey) -> int:
        return self._hosts.local.control.carve(stream_words.STATE_BYTES)

    def _stream_memory(self, device: int) -> StreamMemory:
        """The device's memory and control block, as the ends of its streams reach them."""
        for remote in self._hosts.remotes:
            if device in remote.devices:
                return RemoteStreamMemory(remote, device)
        local = self._hosts.local
        return LocalStreamMemory(local.control.segment.bytes, local.memories[device])

    def _unusable(self) -> DistxlaError | None:
        """The error for waits at a stream, if no call is possible any more."""
        return self.dispatcher.unusable()

    def _routine_failure(self, device: int) -> RoutineFailure | None:
        """A device's report of the Python routine that failed on it."""
        found: list[RoutineFailure | None] = self._hosts.ask(
            [self._hosts.replicas[device].routine_failure.remote()], 30
        )
        return found[0]
