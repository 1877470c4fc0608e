"""Run compiled programs in this process, a thread a device, without Ray and without the runtime."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.collectives.protocols import control_block
from distxla.collectives.protocols.stream import AREA_BYTES, SLOTS_BYTES, STATE_BYTES
from distxla.ir import unwritten
from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.machine.heap import Block
from distxla.machine.segments import Segment
from distxla.program.abi import ALIGNMENT, COMMUNICATE_SYMBOL, ENTRY_SYMBOL, Status
from distxla.program.artifact import CompiledProgram
from distxla.program.execution_context import ExecutionContext
from distxla.runtime.streams.stream_ends import LocalStreamMemory
from distxla.runtime.streams.streams import ClusterStreams
from distxla.targets.registry import load_image
from tests.compiler.channel_places import ThreadChannels, bounce_buffer_bytes, control_bytes

PAGE = 4096
STREAM_BYTES = SLOTS_BYTES + AREA_BYTES
Array = np.ndarray[Any, Any]


class Devices:
    """A program loaded for all its devices: call it with args[d][k] as often as you like; close it at the end.

    apart: devices that have no part in their groups' shared arenas.  in_place: results take the places of parameters
    where the program allows it.  streams: the host's ends of its streams.
    """

    def __init__(self, program: CompiledProgram, apart: Sequence[int] = (), *, in_place: bool = False) -> None:
        self.program = program
        self.count = program.counts.devices
        self.image = load_image(program)
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.image.address_of(ENTRY_SYMBOL))
        offset = 0
        self.offsets: list[list[int]] = []
        sizes = [Shape(S32)] * len(program.parameter_sizes), [Shape(S32)] * len(program.result_sizes)
        for leaves in ((*program.parameter_leaves, *sizes[0]), (*program.result_leaves, *sizes[1])):
            row = []
            for leaf in leaves:
                row.append(offset)
                offset += _aligned(leaf.byte_size)
            self.offsets.append(row)
        for result, parameter in program.in_place if in_place else ():
            self.offsets[1][result] = self.offsets[0][parameter]
        stream_keys = [spec.stream for spec in program.communicators if spec.stream is not None]
        begin = offset + program.arena_bytes
        bounce_buffers = begin + STREAM_BYTES * len(stream_keys)
        own = -(-max(PAGE, bounce_buffers + bounce_buffer_bytes(program) + ALIGNMENT) // PAGE) * PAGE
        shared, common_bytes = _shared_arenas(program, own)
        common = Segment.create("test-common", common_bytes) if common_bytes else None
        segments = [Segment.create(f"test-device-{d}", own, common) for d in range(self.count)]
        for segment in (*segments, *([common] if common is not None else [])):
            segment.close()
        self.memories = [segment.bytes.data for segment in segments]
        self.common = self.memories[0][own:]  # what all of them see behind their own memory
        unwritten.fill(self.common)
        bases = [ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in self.memories]
        at = control_block.fixed_bytes(self.count)
        places: list[list[int]] = [[0] * len(program.communicators) for _ in range(self.count)]
        for number, spec in enumerate(program.communicators):
            for group, size in zip(spec.groups, spec.state_bytes, strict=True):
                for device in group:
                    places[device][number] = at
                at += _aligned(size)
        pairs = _aligned(at + ALIGNMENT + STATE_BYTES * self.count * len(stream_keys))
        self.control = mmap.mmap(-1, pairs + ALIGNMENT + control_bytes(program))
        self.streams = _streams(self.control, at, segments, begin)
        self.streams.load(0, program, range(self.count))
        for number, spec in enumerate(program.communicators):
            if spec.stream is not None:
                for device in range(self.count):
                    places[device][number] = self.streams.place(device, spec.stream)
        self.channels = ThreadChannels(self.control, program, places, pairs, bounce_buffers)
        control = ctypes.addressof(ctypes.c_char.from_buffer(self.control))
        for field, value in (
            (control_block.H_DEVICES, self.count),
            (control_block.H_HERE, self.count),
            (control_block.H_CORES, len(os.sched_getaffinity(0))),
        ):
            struct.pack_into("<I", self.control, field, value)
        routines = [self.image.address_of(COMMUNICATE_SYMBOL.format(site=s.index)) for s in program.sites]
        self.keep: list[Any] = []
        self.contexts = []
        for device in range(self.count):
            context = ExecutionContext(
                device,
                bases,
                partitions=program.counts.partitions,
                control=control,
                record=control + control_block.record_offset(device),
                arena=offset,
                parameters=self.offsets[0],
                results=self.offsets[1],
                routines=routines,
                communicators=[control + place for place in places[device]],
                shared=[0 if device in apart else places.get(device, 0) for places in shared],
            )
            self.keep.append(context)
            self.contexts.append(context.context)

    def __call__(self, args: Sequence[Sequence[Any]]) -> list[list[Array]]:
        """outs[d][k], array leaves only. AssertionError for a status but OK."""
        self.store(args)
        self.run()
        return [self.results(device) for device in range(self.count)]

    def store(self, args: Sequence[Sequence[Any]]) -> None:
        leaves = self.program.parameter_leaves
        for memory, arrays in zip(self.memories, args, strict=True):
            assert len(arrays) == len(leaves), f"{len(arrays)} arguments for {len(leaves)} parameter leaves"
            for array, leaf, offset in zip(arrays, leaves, self.offsets[0]):
                if leaf.is_array:
                    memory[offset : offset + leaf.byte_size] = _padded(array, leaf).tobytes()
            for (k, d), offset in zip(self.program.parameter_sizes, self.offsets[0][len(leaves) :], strict=True):
                struct.pack_into("<i", memory, offset, np.shape(arrays[k])[d])

    def run(self, repeat: int = 1) -> None:
        status = [-1] * self.count
        self.channels.connect()

        def work(device: int) -> None:
            for _ in range(repeat):
                self._begin_run(device)
                status[device] = self.entry(ctypes.addressof(self.contexts[device]))

        if self.count == 1:
            work(0)
        else:
            threads = [threading.Thread(target=work, args=(d,), daemon=True) for d in range(self.count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
        assert status == [Status.OK] * self.count, f"status of each device: {status}"

    def _begin_run(self, device: int) -> None:
        """What the serve loop does before each run."""
        at = control_block.record_offset(device) + control_block.R_RUN
        (run,) = struct.unpack_from("<I", self.control, at)
        struct.pack_into("<I", self.control, at, run + 1)

    def results(self, device: int) -> list[Array]:
        memory, leaves = self.memories[device], self.program.result_leaves
        dim_sizes = [list(leaf.dims) for leaf in leaves]
        for (k, d), offset in zip(self.program.result_sizes, self.offsets[1][len(leaves) :], strict=True):
            (dim_sizes[k][d],) = struct.unpack_from("<i", memory, offset)
        return [
            np.frombuffer(bytes(memory[offset : offset + leaf.byte_size]), leaf.dtype.dtype).reshape(leaf.dims)[
                tuple(slice(n) for n in found)
            ]
            for leaf, offset, found in zip(leaves, self.offsets[1], dim_sizes)
            if leaf.is_array
        ]

    def close(self) -> None:
        self.image.close()


def _padded(array: Any, leaf: Shape) -> Array:
    """An argument as it lies in memory; what stands beyond the sizes of dynamic dimensions is no number."""
    value = np.asarray(array, dtype=leaf.dtype.dtype)
    if not leaf.is_dynamic:
        return np.ascontiguousarray(value.reshape(leaf.dims))
    padded = np.full(leaf.dims, np.nan if leaf.dtype.is_float else 77, leaf.dtype.dtype)
    padded[tuple(slice(n) for n in value.shape)] = value
    return padded


def _streams(control: mmap.mmap, state: int, segments: Sequence[Segment], memory: int) -> ClusterStreams:
    """Streams whose states begin at `state` in the control block, and their blocks at `memory` in device memory."""
    states = itertools.count(_aligned(state), STATE_BYTES)
    begins = itertools.count(_aligned(memory), STREAM_BYTES)
    words = np.frombuffer(control, np.uint8)
    return ClusterStreams(
        lambda device, key: next(states),
        lambda size: Block(deque(), next(begins), size),
        lambda device: LocalStreamMemory(words, segments[device]),
        lambda: None,
    )


def _shared_arenas(program: CompiledProgram, begin: int) -> tuple[list[dict[int, int]], int]:
    """Offsets of the groups' shared arenas, by arena and device, in memory that begins at `begin`; its bytes."""
    found: list[dict[int, int]] = []
    at = begin
    for arena in program.shared:
        found.append({})
        for group in arena.groups:
            found[-1].update(dict.fromkeys(group, at if len(group) > 1 else 0))
            at += arena.bytes
    return found, -(-(at - begin) // PAGE) * PAGE


def run_devices(program: CompiledProgram, args: Sequence[Sequence[Any]]) -> list[list[Array]]:
    """Run the program once on all its devices: args[d][k] -> outs[d][k]."""
    devices = Devices(program)
    try:
        return devices(args)
    finally:
        devices.close()


def run_single(program: CompiledProgram, arrays: Sequence[Any]) -> list[Array]:
    """Run a program of one device once; the result's array leaves."""
    return run_devices(program, [arrays])[0]


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
