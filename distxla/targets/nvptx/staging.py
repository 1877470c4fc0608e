"""Kernels on copies: what a kernel reads is copied to the GPU, and its results are copied back."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from distxla.compiler.abi import Context as ProgramContext
from distxla.compiler.artifact import ImportedKernel
from distxla.targets.nvptx.driver.driver import Context

CONTEXT_BYTES = ctypes.sizeof(ProgramContext)
ALIGNMENT = 256  # of what is allocated on a GPU
UNWRITTEN = 0xFF  # a byte of memory that nothing has written: no number in every float type


@dataclass(frozen=True)
class Placed:
    """Bytes of host memory, from `start` to before `end`, and where their copy begins in the GPU's working memory."""

    start: int
    end: int
    place: int


class StagedKernels:
    """The kernels of one program in a context of the driver. `call` may come from any thread; one runs at a time."""

    def __init__(self, context: Context, code: bytes) -> None:
        """DriverError where the GPU can't load the code."""
        from distxla.ir.unwritten import is_filled

        self._fills = is_filled()
        self._context = context
        self._module = context.load(code)
        self._functions: dict[str, int] = {}
        self._stream = context.create_stream()
        self._memory, self._bytes = 0, 0
        self._lock = threading.Lock()

    def call(self, kernel: ImportedKernel, sizes: Sequence[int], count: int, pointers: Sequence[int]) -> None:
        """Make the kernel's launches, and wait for them.

        sizes: bytes of the operands' leaves and then of the results', of which there are `count`.  pointers: of the
        program's context, the leaves and the scratch memory, on the host. DriverError for what fails on the GPU.
        """
        context, *leaves, _ = pointers
        reads = [(context, CONTEXT_BYTES), *zip(leaves[: len(leaves) - count], sizes)]
        writes = list(zip(leaves[len(leaves) - count :], sizes[len(sizes) - count :]))
        with self._lock:
            placed, end = place([*reads, *writes])
            base = self._room(end + kernel.scratch_bytes)
            if self._fills:
                self._context.fill(base, UNWRITTEN, end + kernel.scratch_bytes, self._stream)
            for start, size in dict.fromkeys(reads):
                self._context.copy_to_device(base + _at(placed, start), start, size, self._stream)
            self._launch(kernel, [base + _at(placed, pointer) for pointer in (context, *leaves)] + [base + end])
            for start, size in writes:
                self._context.copy_to_host(start, base + _at(placed, start), size, self._stream)
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

    def _room(self, size: int) -> int:
        """Working memory of the GPU, uninitialised; OutOfMemoryError."""
        if size > self._bytes:
            if self._memory:
                self._context.free(self._memory)
                self._memory, self._bytes = 0, 0
            self._memory, self._bytes = self._context.allocate(size), size
        return self._memory

    def close(self) -> None:
        """Twice is fine; no call may be under way."""
        if self._stream:
            self._module.unload()
            if self._memory:
                self._context.free(self._memory)
            self._context.destroy_stream(self._stream)
            self._stream = 0


def place(ranges: Sequence[tuple[int, int]]) -> tuple[list[Placed], int]:
    """Places for ranges (start, bytes) of the host: those that overlap stay together. Also where the places end."""
    merged: list[list[int]] = []
    for start, size in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + size)
        else:
            merged.append([start, start + size])
    placed, at = [], 0
    for start, end in merged:
        placed.append(Placed(start, end, at))
        at += -(-max(1, end - start) // ALIGNMENT) * ALIGNMENT
    return placed, at


def _at(placed: Sequence[Placed], start: int) -> int:
    """Where the copy of the host's address is."""
    return next(one.place + start - one.start for one in placed if one.start <= start < max(one.end, one.start + 1))


__all__ = ["Placed", "StagedKernels", "place"]
