"""Runs kernels on copies of their operands in the GPU's memory, and copies the results back."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from distxla.compiler.abi import Context as ProgramContext
from distxla.compiler.artifact import ImportedKernel
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.driver import Context, Module
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError

CONTEXT_BYTES = ctypes.sizeof(ProgramContext)
ALIGNMENT = 256  # of what is allocated on a GPU
UNWRITTEN = 0xFF  # fills uninitialised memory: a NaN in most float types


@dataclass
class ProcessGpu:
    """The GPU as this process uses it, for all its programs. lost: by what, once a kernel's fault has lost it."""

    context: Context
    lost: str = ""

    def require(self) -> None:
        """DriverError once the context is lost."""
        if self.lost:
            raise DriverError(f"this process lost {self.context.gpu} before ({self.lost}): open the cluster anew")

    def note(self, error: DriverCallError, what: str) -> None:
        """After a failed call: whether the context can be used on is seen by a further one."""
        try:
            self.context.synchronise()
        except DriverError:
            self.lost = f"{what}: {error.name}"


@dataclass(frozen=True)
class DeviceRange:
    """Bytes of host memory, from `start` to before `end`, whose copy begins at `offset` in the GPU's working memory."""

    start: int
    end: int
    offset: int


class StagedKernels:
    """The kernels of one program on a GPU. `call` may come from any thread; one runs at a time."""

    def __init__(self, gpu: ProcessGpu, code: DeviceCode) -> None:
        """DriverError where the GPU can't load the code."""
        from distxla.ir.unwritten import is_filled

        gpu.require()
        self._fills = is_filled()
        self._gpu, self._context = gpu, gpu.context
        self._functions: dict[str, int] = {}
        self._memory, self._bytes = 0, 0
        self._lock = threading.Lock()
        self._stream = self._context.create_stream()
        try:
            self._module = _load(self._context, code)
        except BaseException:
            self._context.destroy_stream(self._stream)
            raise

    def call(self, kernel: ImportedKernel, sizes: Sequence[int], result_count: int, pointers: Sequence[int]) -> None:
        """Make the kernel's launches, and wait for them.

        sizes: bytes of the operands' leaves and then of the results'.  pointers: of the program's context, the leaves
        and the scratch memory, on the host; there the GPU's own is used. DriverError for what fails on the GPU.
        """
        context, *leaves, _ = pointers
        first_result = len(leaves) - result_count
        reads = [(context, CONTEXT_BYTES), *zip(leaves[:first_result], sizes)]
        writes = list(zip(leaves[first_result:], sizes[first_result:]))
        with self._lock:
            self._gpu.require()
            try:
                self._run(kernel, (context, *leaves), reads, writes)
            except DriverCallError as error:
                self._gpu.note(error, f"in {kernel.instruction.name} or an instruction that equals it")
                raise

    def _run(
        self,
        kernel: ImportedKernel,
        pointers: Sequence[int],
        reads: Sequence[tuple[int, int]],
        writes: Sequence[tuple[int, int]],
    ) -> None:
        ranges, end = lay_out([*reads, *writes])
        base = self._reserve(end + kernel.scratch_bytes)
        if self._fills:
            self._context.fill(base, UNWRITTEN, end + kernel.scratch_bytes, self._stream)
        for start, size in dict.fromkeys(reads):
            self._context.copy_to_device(base + offset_of(ranges, start), start, size, self._stream)
        self._launch(kernel, [*(base + offset_of(ranges, pointer) for pointer in pointers), base + end])
        for start, size in writes:
            self._context.copy_to_host(start, base + offset_of(ranges, start), size, self._stream)
        self._context.synchronise(self._stream)

    def _launch(self, kernel: ImportedKernel, arguments: Sequence[int]) -> None:
        """arguments: addresses in the GPU's memory."""
        for launch in kernel.launches:
            function = self._function(launch.symbol)
            self._context.launch(function, (launch.blocks, 1, 1), (launch.threads, 1, 1), arguments, self._stream)

    def _function(self, symbol: str) -> int:
        if symbol not in self._functions:
            self._functions[symbol] = self._module.function(symbol)
        return self._functions[symbol]

    def _reserve(self, size: int) -> int:
        """Working memory of the GPU, uninitialised; OutOfMemoryError."""
        if size > self._bytes:
            if self._memory:
                self._context.free(self._memory)
                self._memory, self._bytes = 0, 0
            self._memory, self._bytes = self._context.allocate(size), size
        return self._memory

    def close(self) -> None:
        """Twice is fine; no call may be under way. After a fault the process's end frees what is left."""
        if not self._stream:
            return
        stream, self._stream = self._stream, 0
        with suppress(DriverError):
            self._module.unload()
            if self._memory:
                self._context.free(self._memory)
            self._context.destroy_stream(stream)


def _load(context: Context, code: DeviceCode) -> Module:
    """The cubin where the GPU takes it: a driver takes none of another generation, nor of a much newer assembler."""
    if code.cubin:
        with suppress(DriverError):
            return context.load(code.cubin)
    return context.load(code.code)


def lay_out(ranges: Sequence[tuple[int, int]]) -> tuple[list[DeviceRange], int]:
    """Where ranges (start, bytes) of the host are copied to: those that overlap stay together. Also where that ends."""
    merged: list[list[int]] = []
    for start, size in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + size)
        elif size:
            merged.append([start, start + size])
    found, at = [], 0
    for start, end in merged:
        found.append(DeviceRange(start, end, at))
        at += -(-(end - start) // ALIGNMENT) * ALIGNMENT
    return found, at


def offset_of(ranges: Sequence[DeviceRange], start: int) -> int:
    """Where the copy of the host's address is; 0 where it is of no range, as an empty array's may be."""
    return next((one.offset + start - one.start for one in ranges if one.start <= start < one.end), 0)


__all__ = ["DeviceRange", "ProcessGpu", "StagedKernels", "lay_out", "offset_of"]
