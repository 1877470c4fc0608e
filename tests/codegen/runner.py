"""Run a compiled program for one device in this process, without Ray and without the runtime."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.codegen.abi import ALIGNMENT, COMMUNICATE_SYMBOL, ENTRY_SYMBOL, Context, Status
from distxla.codegen.image import load_image
from distxla.codegen.program import CompiledProgram
from distxla.collectives.control_block import fixed_bytes, record_offset

Array = np.ndarray[Any, Any]


class SingleDevice:
    """A program of one device, loaded: call it with arrays as often as you like."""

    def __init__(self, program: CompiledProgram) -> None:
        if program.replicas * program.partitions != 1:
            raise ValueError("only programs of one device run alone")
        self.program = program
        self.image = load_image(program)
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.image.address_of(ENTRY_SYMBOL))
        offset = 0
        self.offsets: list[list[int]] = []
        for leaves in (program.parameter_leaves, program.result_leaves):
            row = []
            for leaf in leaves:
                row.append(offset)
                offset += _aligned(leaf.byte_size)
            self.offsets.append(row)
        self.memory = mmap.mmap(-1, max(4096, offset + program.arena_bytes))
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        state = [_aligned(size) for spec in program.communicators for size in spec.state_bytes]
        self.control = mmap.mmap(-1, fixed_bytes(1) + sum(state) + ALIGNMENT)
        control = ctypes.addressof(ctypes.c_char.from_buffer(self.control))
        places, at = [], control + fixed_bytes(1)
        for spec in program.communicators:
            places.append(at)
            at += sum(map(_aligned, spec.state_bytes))
        routines = [self.image.address_of(COMMUNICATE_SYMBOL.format(site=s.index)) for s in program.sites]
        self.tables = (
            _pointers([base]),
            _words(self.offsets[0]),
            _words(self.offsets[1]),
            _pointers(routines),
            _pointers(places),
        )
        memory, parameters, results, communicate, communicators = map(ctypes.addressof, self.tables)
        self.context = Context(
            memory=memory,
            arena=offset,
            parameters=parameters,
            results=results,
            communicate=communicate,
            communicators=communicators,
            control=control,
            record=control + record_offset(0),
            device=0,
            replica=0,
            partition=0,
            device_count=1,
        )

    def __call__(self, arrays: Sequence[Any]) -> list[Array]:
        """arrays: leaf k of the parameters; returns the result's leaves. AssertionError for a status but OK."""
        leaves = self.program.parameter_leaves
        assert len(arrays) == len(leaves), f"{len(arrays)} arguments for {len(leaves)} parameter leaves"
        for array, leaf, offset in zip(arrays, leaves, self.offsets[0], strict=True):
            value = np.ascontiguousarray(np.asarray(array, dtype=leaf.dtype.dtype).reshape(leaf.dims))
            self.memory[offset : offset + leaf.byte_size] = value.tobytes()
        status = self.entry(ctypes.addressof(self.context))
        assert status == Status.OK, f"status {status}"
        return [
            np.frombuffer(self.memory[offset : offset + leaf.byte_size], leaf.dtype.dtype).reshape(leaf.dims)
            for leaf, offset in zip(self.program.result_leaves, self.offsets[1], strict=True)
            if leaf.is_array
        ]


def run_single(program: CompiledProgram, arrays: Sequence[Any]) -> list[Array]:
    """Run the program once; the result's array leaves."""
    return SingleDevice(program)(arrays)


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _pointers(addresses: Sequence[int]) -> Any:
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


def _words(offsets: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(1, len(offsets)))(*offsets)
