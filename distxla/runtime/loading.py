"""Giving programs their places and loading them on their devices."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import numpy as np

from distxla.codegen.program import CompiledProgram, SharedArena
from distxla.collectives import state
from distxla.collectives.executed_form import executed_form
from distxla.errors import ArgumentError, ReplicaLostError
from distxla.runtime.channels import Channels
from distxla.runtime.communicators import Communicators
from distxla.runtime.dispatch import Dispatcher
from distxla.runtime.hosts.hosts import ATTACH_LIMIT_S, Hosts
from distxla.runtime.hosts.stream_memory import RemoteStreamMemory
from distxla.runtime.memory import Block, Heap
from distxla.runtime.replica import Placement
from distxla.runtime.stream_ends import LocalStreamMemory, StreamMemory
from distxla.runtime.streams import Streams

if TYPE_CHECKING:
    from distxla.runtime.executable import Executable
    from distxla.runtime.routines import RoutineFailure


class Loader:
    """What is loaded on a run's devices. dispatcher: calls it.  communicators: state of all programs' communicators.
    streams: to and from the host.  channels: between devices."""

    def __init__(self, hosts: Hosts, heap: Heap, replicas: int, partitions: int) -> None:
        self._hosts = hosts
        self._heap = heap
        self._counts = (replicas, partitions)
        self._arena: Block | None = None
        self._common = Heap(hosts.memory_bytes, hosts.common_pages, begin=hosts.memory_bytes)
        self._shared: dict[tuple[int, frozenset[int]], Block] = {}  # by number of the arena and group
        self._numbers = 0
        self.streams = Streams(hosts.local.control.carve, heap.allocate, self._stream_memory, self._lost)
        self.communicators = Communicators(hosts.local.control, self.streams, hosts.remotes)
        words = hosts.local.control.words
        self.channels = Channels(self.communicators, words, heap.allocate, replicas, partitions, hosts.devices)
        self.dispatcher = Dispatcher(hosts, self.communicators, self.streams, self._routine_failure)

    def load(self, executable: Executable) -> None:
        """Give the program its places and load it on its devices; once. Blocks until they have it.

        ArgumentError where it was compiled for other counts, or a routine of its custom-calls can't be had there.
        """
        import ray

        begin = time.perf_counter()
        program, block = executable.program, self._hosts.local.control
        replicas, partitions = self._counts
        if program.replicas != replicas or program.partitions != partitions:
            raise ArgumentError(
                f"{program.name} was compiled for {program.replicas} x {program.partitions} devices, "
                f"the cluster has {replicas} x {partitions}"
            )
        if self._arena is None or self._arena.size < program.arena_bytes:
            self._arena = self._heap.allocate(program.arena_bytes)  # programs never run at once on one device
        number, self._numbers = self._numbers, self._numbers + 1
        count = len(executable.parameters) + len(executable.results)
        area = block.carve(8 * max(1, count) * len(executable.devices))
        reference = ray.put(dataclasses.replace(program, steps=()))  # those are for reports
        routines = None
        if executable.targets:
            from distxla.runtime.routines import pack

            routines = ray.put(pack(executable.targets))
        self.streams.load(number, program, executable.devices)
        self._tell_hosts(program)
        shared = [self._shared_arena(number, arena, executable) for number, arena in enumerate(program.shared)]
        pending, states = [], {}
        for row, device in enumerate(executable.devices):
            begins = area + 8 * count * row
            placement = Placement(
                number,
                self._arena.offset,
                begins,
                begins + 8 * len(executable.parameters),
                tuple(self.communicators.place(spec, device) for spec in program.communicators),
                tuple(blocks[device].offset if device in blocks else 0 for blocks in shared),
            )
            pending.append(self._hosts.replicas[device].load.remote(reference, placement, routines))
            states[device] = placement.communicators
        for agent, devices in zip(self._hosts.agent_actors, self._hosts.devices):
            if relayed := {device: states[device] for device in devices if device in states}:
                pending.append(agent.load.remote(number, reference, relayed))
        self._hosts.ask(pending, ATTACH_LIMIT_S)
        words = np.frombuffer(block.segment.bytes, np.uint64)
        executable.call_area = words[area // 8 : area // 8 + count * len(executable.devices)].reshape(
            len(executable.devices), count
        )
        for remote in self._hosts.remotes:
            rows = [row for row, device in enumerate(executable.devices) if device in remote.devices]
            remote.place(number, [(area + 8 * count * row, 8 * count) for row in rows])
        executable.arena = self._arena
        executable.shared = shared
        executable.number = number
        self.dispatcher.programs[number] = program
        if executable.module is not None:
            self.dispatcher.modules[number] = executed_form(executable.module)
        executable.load_s = time.perf_counter() - begin

    def _tell_hosts(self, program: CompiledProgram) -> None:
        """Write into the states of groups that live on several hosts how many members each host has."""
        hosts = self._hosts.devices
        for spec in program.communicators if len(hosts) > 1 else ():
            for group in spec.groups if spec.stream is None and not spec.pairs else ():
                local = [sum(device in devices for device in group) for devices in hosts]
                offset = self.communicators.place(spec, group[0])
                if max(local) < len(group) and offset is not None:
                    for index, count in enumerate(local):
                        self.communicators.configure_host(index, offset + state.G_LOCAL, count, int(count > 0))

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

    def _stream_memory(self, device: int) -> StreamMemory:
        """The device's memory and control block, as the ends of its streams reach them."""
        for remote in self._hosts.remotes:
            if device in remote.devices:
                return RemoteStreamMemory(remote, device)
        return LocalStreamMemory(self._hosts.local.control.segment.bytes, self._hosts.local.memories[device])

    def _lost(self) -> ReplicaLostError | None:
        """What to tell who waits at a stream, once a replica has ended."""
        text = self.dispatcher.lost_text()
        return ReplicaLostError(f"{text} has ended; the cluster cannot be used any more") if text else None

    def _routine_failure(self, device: int) -> RoutineFailure | None:
        """What a device knows of the Python routine that failed on it."""
        found: list[RoutineFailure | None] = self._hosts.ask(
            [self._hosts.replicas[device].routine_failure.remote()], 30
        )
        return found[0]
