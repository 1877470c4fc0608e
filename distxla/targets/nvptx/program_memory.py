"""A program's arrays in the GPU's memory while a call runs, and its kernels.

All arrays of the program have a place there: its arena, arguments, results, constants, and what groups share. The plan
says what is copied, and when (compiler/plan/transfers.py). The program itself queues launches and copies, and waits
where it wants a value (host_calls.py); it comes here when a call begins, at the first use of a constant, and when the
driver refuses something.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from distxla.collectives.protocols.exported_memory import BLOCKS
from distxla.errors import InternalError
from distxla.lazy_dataclass import dataclass, field
from distxla.program.abi import Context as ProgramContext
from distxla.program.artifact import CompiledProgram
from distxla.targets.nvptx.call_state import CALLED, STAGING_BYTES, CallState
from distxla.targets.nvptx.cublas.gemm import gemm_numbers
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.driver import Context, Module
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.exported_blocks import ExportedBlock, ExportedTable
from distxla.targets.nvptx.interfaces.cublas import GEMM
from distxla.targets.nvptx.process_gpu import ProcessGpu

ALIGNMENT = 256  # of what is allocated on a GPU


class DeviceRanges:
    """Ranges of the host's memory side by side in one block of the GPU's; those that overlap stay together.

    bytes: of the block.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """ranges: (start, bytes)."""
        merged: list[list[int]] = []
        for start, size in sorted(ranges):
            if merged and start < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], start + size)
            elif size:
                merged.append([start, start + size])
        self.bytes = 0
        self._starts, self._ends, self._offsets = [], [], []
        for start, end in merged:
            self._starts.append(start)
            self._ends.append(end)
            self._offsets.append(self.bytes)
            self.bytes += -(-(end - start) // ALIGNMENT) * ALIGNMENT

    def offset_of(self, place: int) -> int | None:
        """Where the block has the host's address; None where it hasn't."""
        number = bisect_right(self._starts, place) - 1
        if number < 0 or place >= self._ends[number]:
            return None
        return int(self._offsets[number] + place - self._starts[number])


CONTEXT_BYTES = ctypes.sizeof(ProgramContext)
BEFORE_RANGES = DeviceRanges([(0, CONTEXT_BYTES)]).bytes  # the context, at the begin of the block
UNWRITTEN = 0xFF  # fills uninitialised memory, as that of compiler/entry/grid_steps.py


@dataclass
class CallMemory:
    """The GPU's memory of one device's calls of a program.

    place: the tables of the last call: while they stay the same, so do addresses.  size: of the block of the GPU's
    memory that begins with the program's context.  tables: that the state points to.  exported: that block, where other
    devices use it.
    """

    state: CallState
    constants: Any
    opened: Any
    place: bytes = b""
    size: int = 0
    tables: dict[str, Any] = field(default_factory=dict)
    exported: tuple[ExportedBlock, ExportedTable] | None = None
    staging: Any = field(default_factory=lambda: ctypes.create_string_buffer(STAGING_BYTES))


class ProgramOnGpu:
    """One program's kernels and memory. Its devices may call at the same time, each with a context of its own.

    Methods raise DriverError for what fails on the GPU, now or in an earlier launch; `place`s are host addresses.
    """

    def __init__(self, gpu: ProcessGpu, program: CompiledProgram, code: DeviceCode) -> None:
        """DriverError where the GPU can't load the code."""
        from distxla.ir.unwritten import is_filled

        gpu.require()
        self._fills = is_filled()
        self._gpu, self._context = gpu, gpu.context
        self._launching, self._launched = program.grid.launching, program.grid.launched
        self._exports = any(site.on_device for site in program.sites)
        self._parameters = [leaf.byte_size for leaf in program.parameter_leaves] + [4] * len(program.parameter_sizes)
        self._results = [leaf.byte_size for leaf in program.result_leaves] + [4] * len(program.result_sizes)
        self._shared = [arena.bytes for arena in program.shared]
        self._arena_bytes = program.arena_bytes
        self._scratch_bytes = max((kernel.scratch_bytes for kernel in self._launched), default=0)
        products = (product for kernel in self._launched for product in kernel.products)
        self._cublas = gpu.cublas() if any(gemm_numbers(product) is not None for product in products) else None
        self._memories: dict[int, CallMemory] = {}
        self._constants: dict[int, int] = {}
        self._lock = threading.Lock()
        self._module: Module | None = _load(self._context, code)
        launches = [launch for kernel in self._launched for launch in kernel.launches]
        self._functions = (ctypes.c_void_p * len(launches))(*(self._module.function(each.symbol) for each in launches))

    def driver_function(self, name: str) -> int:
        """The address of a function of the driver."""
        return self._context.address_of(name)

    # --- called by the program

    def begin(self, context: int, constants: int) -> None:
        """Give all arrays of the call that has this context a place on the GPU. constants: how many the kernels use."""
        self._gpu.require()
        call = ProgramContext.from_address(context)
        if context not in self._memories:
            self._memories[context] = self._new_memory(constants, call)
        memory = self._memories[context]
        call.grid = ctypes.addressof(memory.state)
        memory.state.last = 0
        try:
            self._context.synchronise(memory.state.stream)  # an earlier call may have failed amid kernels
            self._place(memory, call)
            if self._cublas is not None:
                memory.state.cublas = self._cublas.handle(memory.state.stream)
                memory.state.multiply = self._cublas.multiply
            if self._fills:
                self._context.fill(memory.state.context, UNWRITTEN, memory.size, memory.state.stream)
            ctypes.memmove(memory.staging, context, CONTEXT_BYTES)
            memory.state.staged = CONTEXT_BYTES
            source = ctypes.addressof(memory.staging)
            self._context.copy_to_device(memory.state.context, source, CONTEXT_BYTES, memory.state.stream)
        except DriverCallError as error:
            self._gpu.note(error, "before any kernel")
            raise

    def constant(self, context: int, number: int, place: int, size: int) -> None:
        """Copy a constant for all devices of this process."""
        memory = self._memories[context]
        with self._lock:
            if number not in self._constants:
                address = self._context.allocate(size)
                self._context.copy_to_device(address, place, size, memory.state.stream)
                self._context.synchronise(memory.state.stream)
                self._constants[number] = address
        memory.constants[number] = self._constants[number]

    def open(self, context: int, device: int, number: int) -> None:
        """Find another device's block, of which it has posted an address."""
        call, memory = ProgramContext.from_address(context), self._memories[context]
        row = ExportedTable(call.control, call.device_count, device).find_to_open(number)
        if row is None:
            raise InternalError(f"device {device} has posted an address in block {number}, which it has not exported")
        memory.opened[device * BLOCKS + number] = self._gpu.blocks.open(*row)

    def failed(self, context: int, function: int, result: int) -> None:
        """Raise the error of a function of the driver that the program called."""
        last = self._memories[context].state.last
        error = self._error(CALLED[function], result)
        if not last:
            self._gpu.note(error, "before any kernel")
            raise error
        where = "at {} ({}) or before it".format(*self._launching[last - 1])
        self._gpu.note(error, where)
        raise DriverError(f"{where}: {error.message}") from error

    def _error(self, function: str, result: int) -> DriverCallError:
        if function != GEMM or self._cublas is None:
            return self._context.error(function, result)
        error = self._cublas.error(GEMM, result)
        try:
            self._context.synchronise()
        except DriverCallError as fault:  # of an earlier kernel, which cuBLAS only passes on
            fault.__cause__ = error
            return fault
        return error

    # --- memory

    def _new_memory(self, constants: int, call: ProgramContext) -> CallMemory:
        opened = call.device_count * BLOCKS if self._exports else 0
        memory = CallMemory(CallState(), (ctypes.c_uint64 * constants)(), (ctypes.c_uint64 * opened)())
        memory.state.stream = self._context.create_stream()
        memory.state.functions = ctypes.addressof(self._functions)
        memory.state.constants = ctypes.addressof(memory.constants)
        memory.state.staging = ctypes.addressof(memory.staging)
        memory.state.opened = ctypes.addressof(memory.opened)
        memory.state.is_one_of_several = self._gpu.is_one_of_several
        return memory

    def _place(self, memory: CallMemory, context: ProgramContext) -> None:
        own = ctypes.c_void_p.from_address(context.memory + 8 * context.device).value or 0
        tables = {
            name: (ctypes.c_uint64 * len(sizes)).from_address(table or 0) if sizes else ()
            for name, table, sizes in (
                ("parameters", context.parameters, self._parameters),
                ("results", context.results, self._results),
                ("shared", context.shared, self._shared),
            )
        }
        place = b"".join([ctypes.c_uint64(context.arena), *map(bytes, tables.values())])
        if memory.size and memory.place == place:
            return
        sizes = {"parameters": self._parameters, "results": self._results, "shared": self._shared}
        arrays = [(context.arena, self._arena_bytes)]
        for name, offsets in tables.items():
            pairs = zip(offsets, sizes[name], strict=True)
            arrays += [pair for pair in pairs if name != "shared" or pair[0]]  # offset 0: no part of the arena
        ranges = DeviceRanges([(own + offset, size) for offset, size in arrays])
        needed = BEFORE_RANGES + ranges.bytes + self._scratch_bytes
        if needed != memory.size:
            self._free(memory)
            memory.state.context = self._allocate(memory, needed, context)
            memory.size = needed
        first = memory.state.context + BEFORE_RANGES

        def address(offset: int) -> int:
            """0 of an empty array, and of none."""
            found = ranges.offset_of(own + offset)
            return 0 if found is None else first + found

        memory.state.arena = address(context.arena)
        memory.state.scratch = first + ranges.bytes
        for name, offsets in tables.items():
            memory.tables[name] = (ctypes.c_uint64 * len(offsets))(*map(address, offsets))
            setattr(memory.state, name, ctypes.addressof(memory.tables[name]))
        memory.place = place

    def _allocate(self, memory: CallMemory, size: int, context: ProgramContext) -> int:
        if not self._exports:
            return self._context.allocate(size)
        block = self._gpu.blocks.allocate(size)
        table = ExportedTable(context.control, context.device_count, context.device)
        memory.exported = block, table
        memory.state.export = block.posted_bias & (1 << 64) - 1
        memory.opened[context.device * BLOCKS + block.number] = block.address
        table.publish(block)
        return block.address

    def _free(self, memory: CallMemory) -> None:
        if not memory.size:
            return
        memory.size = 0
        if memory.exported is None:
            self._context.free(memory.state.context)
            return
        block, table = memory.exported
        table.withdraw(block.number)
        self._gpu.blocks.give_back(block, is_opened=table.is_opened(block.number))
        memory.exported = None

    def close(self) -> None:
        """Twice is fine; no call may be under way. After a fault the process's end frees what is left."""
        if self._module is None:
            return
        module, self._module = self._module, None
        with suppress(DriverError):
            module.unload()
            for memory in self._memories.values():
                self._free(memory)
                self._context.destroy_stream(memory.state.stream)
            for address in self._constants.values():
                self._context.free(address)


def _load(context: Context, code: DeviceCode) -> Module:
    """The cubin where the GPU takes it: a driver takes none of another generation, nor of a much newer assembler."""
    if code.cubin:
        with suppress(DriverError):
            return context.load(code.cubin)
    return context.load(code.code)


__all__ = ["ProgramOnGpu"]
