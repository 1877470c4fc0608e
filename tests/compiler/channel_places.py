"""Channels of a program that runs in threads: the runtime's own wiring over a control block made by hand."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.transports.shared_words import SharedWords
from distxla.machine.heap import Block
from distxla.program.artifact import CommunicatorSpec, CompiledProgram
from distxla.runtime.groups.channel_connections import ClusterChannels


def bounce_buffer_bytes(program: CompiledProgram) -> int:
    """Of each device's memory, at most: a bounce buffer for each send and recv with each device."""
    ends = [spec.channel for spec in program.communicators if spec.channel is not None]
    devices = program.counts.devices
    return sum(devices * channel_words.RING * (channel_words.packed(end.payload)[1] + 64) for end in ends)


def control_bytes(program: CompiledProgram) -> int:
    """Of the control block, at most: a pair for each send and recv with each device."""
    ends = [spec.channel for spec in program.communicators if spec.channel is not None]
    devices = program.counts.devices
    largest = max((channel_words.pair_bytes(channel_words.slot_bytes(end.payload)) + 64 for end in ends), default=0)
    return len(ends) * devices * largest


class _Places:
    """What `runtime.channels` asks of the communicators. places: by device and communicator."""

    def __init__(self, control: Any, program: CompiledProgram, places: Sequence[Sequence[int]], begin: int) -> None:
        self._control, self._program, self._places, self._top = control, program, places, begin
        self._shared: dict[tuple[Any, ...], int] = {}

    def place(self, spec: CommunicatorSpec, device: int, program: int | None) -> int:
        keys = [known.key for known in self._program.communicators]
        return self._places[device][keys.index(spec.key)]

    def shared(self, key: tuple[Any, ...], size: int, program: int | None, members: Iterable[int]) -> int:
        if key not in self._shared:
            self._shared[key] = self._top
            self._top += (size + 63) // 64 * 64
        return self._shared[key]

    def configure(self, offset: int, *words: int) -> None:
        struct.pack_into(f"<{len(words)}I", self._control, offset, *words)

    def configure_host(self, index: int, offset: int, *words: int) -> None:
        self.configure(offset, *words)

    def clear(self, offset: int, size: int) -> None:
        raise AssertionError("a call left transfers in flight")


class ThreadChannels:
    """Call `connect` before each run of the program."""

    def __init__(
        self, control: Any, program: CompiledProgram, places: Sequence[Sequence[int]], begin: int, memory: int
    ) -> None:
        """begin, memory: where free bytes of the control block and of device memory begin."""
        communicators: Any = _Places(control, program, places, begin)
        self._memory = (memory + 63) // 64 * 64
        self._calls = [(0, program, tuple(range(program.counts.devices)))]
        counts = program.counts
        words = SharedWords(memoryview(control)[: len(control) // 8 * 8])
        self._channels = ClusterChannels(communicators, words, self._allocate, counts, [range(counts.devices)])

    def connect(self) -> None:
        self._channels.connect(self._calls)

    def _allocate(self, size: int) -> Block:
        offset, self._memory = self._memory, self._memory + (size + 63) // 64 * 64
        return Block(deque(), offset, size)
