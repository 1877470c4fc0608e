"""Run a compiled one-device program with inaccessible memory directly before or behind every array.

Reading or writing beyond an array ends the process with SIGSEGV, so this is for a forked child. At the start
memory holds no zeros: what a program reads before it wrote it shows in its results.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from distxla.collectives.protocols import control_block
from distxla.compiler.compile import compile_module
from distxla.compiler.entry import entry
from distxla.compiler.plan import plan_program
from distxla.compiler.plan.buffers import Buffer
from distxla.ir.counts import Counts
from distxla.ir.element_type import S32
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.program.abi import COMMUNICATE_SYMBOL, ENTRY_SYMBOL, Status
from distxla.program.artifact import CompiledProgram
from distxla.program.execution_context import ExecutionContext
from distxla.targets.registry import load_image
from tests.compiler.runner import Array, _aligned, _padded

PAGE = mmap.PAGESIZE
PROT_READ_WRITE = 3
MAP_PRIVATE_ANONYMOUS_NORESERVE = 0x4022
FILL = 0xA5

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Compiles and runs with each array's end (or, with `front`, its start) at an inaccessible page.

    It changes the planner and llvmlite for the rest of the process.
    """

    def __init__(self, *, front: bool) -> None:
        self.front = front
        self._arena: list[tuple[int, int]] = []
        self._arena_bytes = 0
        plan_program.place = self._place  # type: ignore[assignment]
        # The arena has inaccessible pages in it: what can be written is filled below.
        entry.fill_at_begin = lambda *_: None
        # An array that ends at a page's end begins anywhere: no kernel may count on alignment here.
        ir.values.ArgumentAttributes.align = property(lambda _: 0, lambda _, __: None)

    def __call__(self, module: Module, arrays: Sequence[Any]) -> list[Array]:
        """The result's array leaves. AssertionError for a status but OK, and where scratch memory was overrun."""
        program = compile_module(module, Counts(1, 1))
        at, offsets, pages = 0, [], []
        size_leaves = [Shape(S32)] * len(program.parameter_sizes), [Shape(S32)] * len(program.result_sizes)
        for leaves in ((*program.parameter_leaves, *size_leaves[0]), (*program.result_leaves, *size_leaves[1])):
            row = []
            for leaf in leaves:
                offset, page, at = self._slot(at, leaf.byte_size if leaf.is_array else 0)
                row.append(offset)
                pages.append(page)
            offsets.append(row)
        pages += [(at + start, size) for start, size in self._arena]
        scratch = program.arena_bytes - self._arena_bytes
        scratch_at, scratch_pages = at + self._arena_bytes, (scratch + PAGE - 1) // PAGE * PAGE
        pages.append((scratch_at, scratch_pages))
        base = libc.mmap(None, scratch_at + scratch_pages + PAGE, 0, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
        for start, size in pages:
            if size:
                assert libc.mprotect(base + start, size, PROT_READ_WRITE) == 0
                ctypes.memset(base + start, FILL, size)
        self._store(program, arrays, base, offsets[0])
        assert _run(program, base, at, offsets) == Status.OK
        behind = ctypes.string_at(base + scratch_at + scratch, scratch_pages - scratch)
        assert behind == bytes([FILL]) * len(behind), "written behind the scratch memory"
        return _results(program, base, offsets[1])

    def _place(self, buffers: list[Buffer]) -> int:
        """In place of the planner's: no two buffers share memory."""
        at, self._arena = 0, []
        for buffer in buffers:
            buffer.number, page, at = self._slot(at, buffer.size)
            self._arena.append(page)
        self._arena_bytes = at + PAGE
        return self._arena_bytes

    def _slot(self, at: int, size: int) -> tuple[int, tuple[int, int], int]:
        """(the array's offset, its pages, where the next slot begins): pages behind one that stays inaccessible."""
        pages = (size + PAGE - 1) // PAGE * PAGE
        start = at + PAGE
        return start if self.front else start + pages - size, (start, pages), start + pages

    def _store(self, program: CompiledProgram, arrays: Sequence[Any], base: int, offsets: Sequence[int]) -> None:
        for array, leaf, offset in zip(arrays, program.parameter_leaves, offsets):
            data = _padded(array, leaf).tobytes()
            ctypes.memmove(base + offset, data, len(data))
        for (k, d), offset in zip(program.parameter_sizes, offsets[len(arrays) :], strict=True):
            ctypes.memmove(base + offset, struct.pack("<i", np.shape(arrays[k])[d]), 4)


def _run(program: CompiledProgram, base: int, arena: int, offsets: Sequence[Sequence[int]]) -> int:
    image = load_image(program)
    end, places = control_block.fixed_bytes(1), []
    for spec in program.communicators:
        places.append(end)
        end += sum(map(_aligned, spec.state_bytes))
    control_memory = mmap.mmap(-1, end + PAGE)
    control = ctypes.addressof(ctypes.c_char.from_buffer(control_memory))
    struct.pack_into("<I", control_memory, control_block.H_DEVICES, 1)
    struct.pack_into("<I", control_memory, control_block.H_HERE, 1)
    struct.pack_into("<I", control_memory, control_block.H_CORES, 1)
    routines = [image.address_of(COMMUNICATE_SYMBOL.format(site=site.index)) for site in program.sites]
    context = ExecutionContext(
        0,
        [base],
        control=control,
        record=control + control_block.record_offset(0),
        arena=arena,
        parameters=offsets[0],
        results=offsets[1],
        routines=routines,
        communicators=[control + place for place in places],
    )
    entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(image.address_of(ENTRY_SYMBOL))
    return int(entry(context.address))


def _results(program: CompiledProgram, base: int, offsets: Sequence[int]) -> list[Array]:
    leaves = program.result_leaves
    sizes = [list(leaf.dims) for leaf in leaves]
    for (k, d), offset in zip(program.result_sizes, offsets[len(leaves) :], strict=True):
        (sizes[k][d],) = struct.unpack("<i", ctypes.string_at(base + offset, 4))
        assert 0 <= sizes[k][d] <= leaves[k].dims[d]
    return [
        np.frombuffer(ctypes.string_at(base + offset, leaf.byte_size), leaf.dtype.dtype).reshape(leaf.dims)[
            tuple(slice(n) for n in found)
        ]
        for leaf, offset, found in zip(leaves, offsets, sizes)
        if leaf.is_array
    ]
