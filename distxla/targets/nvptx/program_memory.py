"""A program's arrays in the GPU's memory while a call runs, and its kernels.

All arrays of the program have a place there: its arena, arguments, results, and what groups share. The plan says what
is copied, and when (compiler/plan/transfers.py); launches and copies are queued, and the host waits where it wants a
value.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from distxla.compiler.abi import Context as ProgramContext
from distxla.compiler.artifact import CompiledProgram, ImportedKernel
from distxla.errors import InternalError
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.device_ranges import DeviceRanges
from distxla.targets.nvptx.driver.driver import Context, Module
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.process_gpu import ProcessGpu

CONTEXT_BYTES = ctypes.sizeof(ProgramContext)
BEFORE_RANGES = DeviceRanges([(0, CONTEXT_BYTES)]).bytes  # the context, at the begin of the block
UNWRITTEN = 0xFF  # fills uninitialised memory: a NaN in most float types
KEPT_BYTES = 1 << 12  # uploads up to here are taken at once, and larger ones waited for


@dataclass
class CallMemory:
    """The GPU's memory of one device's calls of a program.

    place: the tables of the last call: while they stay the same, so do `ranges`.  block: `size` bytes of the GPU's
    memory, which begin with the program's context.  kept: host memory that queued copies read.  last: the kernel
    launched last.
    """

    stream: int
    place: bytes = b""
    ranges: DeviceRanges = field(default_factory=lambda: DeviceRanges(()))
    block: int = 0
    size: int = 0
    kept: list[Any] = field(default_factory=list)
    last: str = ""


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
        self._parameters = [leaf.byte_size for leaf in program.parameter_leaves] + [4] * len(program.parameter_sizes)
        self._results = [leaf.byte_size for leaf in program.result_leaves] + [4] * len(program.result_sizes)
        self._shared = [arena.bytes for arena in program.shared]
        self._arena_bytes = program.arena_bytes
        self._scratch_bytes = max((kernel.scratch_bytes for kernel in program.kernels), default=0)
        self._waits = program.traced  # so that its events are the kernels' times
        self._functions: dict[str, int] = {}
        self._memories: dict[int, CallMemory] = {}
        self._constants: dict[int, int] = {}
        self._lock = threading.Lock()
        self._module: Module | None = _load(self._context, code)

    # --- a call

    def begin(self, context: int) -> None:
        """Give all arrays of the call that has this context a place on the GPU."""
        with self._guarded(context) as memory:
            self._context.synchronise(memory.stream)  # an earlier call may have failed amid kernels
            memory.kept.clear()
            memory.last = ""
            self._place(memory, ProgramContext.from_address(context))
            if self._fills:
                self._context.fill(memory.block, UNWRITTEN, memory.size, memory.stream)
            self._upload(memory, memory.block, context, CONTEXT_BYTES)

    def end(self, context: int) -> None:
        """Wait for all kernels of the call."""
        with self._guarded(context) as memory:
            self._wait(memory)

    def to_device(self, context: int, place: int, size: int) -> None:
        with self._guarded(context) as memory:
            self._upload(memory, self._at(memory, place), place, size)

    def to_host(self, context: int, place: int, size: int) -> None:
        """Wait for the kernels before, and for the copy."""
        with self._guarded(context) as memory:
            self._context.copy_to_host(place, self._at(memory, place), size, memory.stream)
            self._wait(memory)

    def copy(self, context: int, target: int, source: int, size: int) -> None:
        """Within the GPU's memory."""
        with self._guarded(context) as memory:
            if target != source:
                address = self._address(memory, source, size)
                self._context.copy(self._at(memory, target), address, size, memory.stream)

    def launch(self, kernel: ImportedKernel, sizes: Sequence[int], result_count: int, pointers: Sequence[int]) -> None:
        """Queue the kernel's launches.

        sizes: bytes of the operands' leaves and then of the results'.  pointers: of the context, the leaves and the
        scratch memory, on the host.
        """
        context, *leaves, _ = pointers
        with self._guarded(context) as memory:
            memory.last = f"{kernel.instruction.name} ({kernel.instruction.opcode})"
            addresses = [self._address(memory, leaf, size) for leaf, size in zip(leaves, sizes, strict=True)]
            scratch = memory.block + memory.size - self._scratch_bytes
            if self._fills:
                self._fill(memory, addresses, sizes, len(leaves) - result_count)
            self._launch(kernel, [memory.block, *addresses, scratch], memory.stream)
            if self._waits:
                self._wait(memory)

    def _launch(self, kernel: ImportedKernel, addresses: Sequence[int], stream: int) -> None:
        for launch in kernel.launches:
            function = self._function(launch.symbol)
            self._context.launch(function, (launch.blocks, 1, 1), (launch.threads, 1, 1), addresses, stream)

    def _function(self, symbol: str) -> int:
        if symbol not in self._functions:
            assert self._module is not None
            self._functions[symbol] = self._module.function(symbol)
        return self._functions[symbol]

    # --- memory

    def _place(self, memory: CallMemory, context: ProgramContext) -> None:
        own = ctypes.c_void_p.from_address(context.memory + 8 * context.device).value or 0
        tables = [
            (ctypes.c_uint64 * len(sizes)).from_address(table or 0) if sizes else ()
            for table, sizes in (
                (context.parameters, self._parameters),
                (context.results, self._results),
                (context.shared, self._shared),
            )
        ]
        place = b"".join([ctypes.c_uint64(context.arena), *map(bytes, tables)])
        if memory.block and memory.place == place:
            return
        parameters, results, shared = tables
        arrays = [(context.arena, self._arena_bytes), *zip(parameters, self._parameters), *zip(results, self._results)]
        arrays += [(offset, size) for offset, size in zip(shared, self._shared) if offset]  # 0: no part of it
        memory.ranges = DeviceRanges([(own + offset, size) for offset, size in arrays])
        needed = BEFORE_RANGES + memory.ranges.bytes + self._scratch_bytes
        if needed != memory.size:
            if memory.block:
                self._context.free(memory.block)
                memory.block = memory.size = 0
            memory.block, memory.size = self._context.allocate(needed), needed
        memory.place = place

    def _at(self, memory: CallMemory, place: int) -> int:
        """Where the GPU has one of the call's arrays."""
        offset = memory.ranges.offset_of(place)
        if offset is None:
            raise InternalError(f"no array of the program is at {place:#x}")
        return memory.block + BEFORE_RANGES + offset

    def _address(self, memory: CallMemory, place: int, size: int) -> int:
        """Where the GPU has one of the call's arrays or a constant of the program; 0 of an empty array."""
        if not size:
            return 0
        if memory.ranges.offset_of(place) is not None:
            return self._at(memory, place)
        with self._lock:
            if place not in self._constants:
                self._constants[place] = self._context.allocate(size)
                self._upload(memory, self._constants[place], place, size)
                self._context.synchronise(memory.stream)  # other devices of this process use it, too
            return self._constants[place]

    def _upload(self, memory: CallMemory, address: int, source: int, size: int) -> None:
        """The host's memory may be written as soon as this returns."""
        if size <= KEPT_BYTES:
            memory.kept.append(ctypes.create_string_buffer(ctypes.string_at(source, size), size))
            self._context.copy_to_device(address, ctypes.addressof(memory.kept[-1]), size, memory.stream)
        else:
            self._context.copy_to_device(address, source, size, memory.stream)
            self._wait(memory)

    def _fill(self, memory: CallMemory, addresses: Sequence[int], sizes: Sequence[int], first_result: int) -> None:
        """Results that are no operand, too: a read of bytes that the kernel doesn't write shows."""
        operands = set(addresses[:first_result])
        for address, size in zip(addresses[first_result:], sizes[first_result:], strict=True):
            if size and address not in operands:
                self._context.fill(address, UNWRITTEN, size, memory.stream)
        if self._scratch_bytes:
            end = memory.block + memory.size
            self._context.fill(end - self._scratch_bytes, UNWRITTEN, self._scratch_bytes, memory.stream)

    def _wait(self, memory: CallMemory) -> None:
        self._context.synchronise(memory.stream)
        memory.kept.clear()

    @contextmanager
    def _guarded(self, context: int) -> Iterator[CallMemory]:
        """The memory of the calls with this context, while the GPU is used for one of them."""
        self._gpu.require()
        memory = self._memories.get(context)
        try:
            if memory is None:
                memory = self._memories[context] = CallMemory(self._context.create_stream())
            yield memory
        except DriverCallError as error:
            if memory is None or not memory.last:
                self._gpu.note(error, "before any kernel")
                raise
            self._gpu.note(error, f"at {memory.last} or before it")
            raise DriverError(f"at {memory.last} or before it: {error.message}") from error

    def close(self) -> None:
        """Twice is fine; no call may be under way. After a fault the process's end frees what is left."""
        if self._module is None:
            return
        module, self._module = self._module, None
        with suppress(DriverError):
            module.unload()
            for memory in self._memories.values():
                if memory.block:
                    self._context.free(memory.block)
                self._context.destroy_stream(memory.stream)
            for address in self._constants.values():
                self._context.free(address)


def _load(context: Context, code: DeviceCode) -> Module:
    """The cubin where the GPU takes it: a driver takes none of another generation, nor of a much newer assembler."""
    if code.cubin:
        with suppress(DriverError):
            return context.load(code.cubin)
    return context.load(code.code)


__all__ = ["ProgramOnGpu"]
