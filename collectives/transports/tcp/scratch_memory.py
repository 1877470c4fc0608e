"""Bytes at addresses of this process: views, copies, reductions, and scratch memory that is used again."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distxla.collectives.protocols import proxy_queue
from distxla.ir.unwritten import empty
from distxla.targets.target import LoadedImage

FRAME_PIECE_BYTES = 1 << 20  # that travel in one frame
_KEPT = 32  # pieces of scratch memory that stay

_REDUCE_RUN = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
)


class _At:
    """NumPy's array interface of memory that another object keeps."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": shape,
            "strides": strides,
            "data": (address, False),
        }


def view(address: int, size: int) -> memoryview:
    """`size` bytes at an address."""
    return np.asarray(_At(address, (size,), None)).data


def rows_at(address: int, rows: int, row: int, stride: int) -> NDArray[np.uint8]:
    """Rows of `row` bytes, `stride` apart."""
    return np.asarray(_At(address, (rows, row), (stride, 1)))


class Scratch:
    """Memory for pieces in flight. Thread-safe."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> NDArray[np.uint8]:
        """Uninitialised bytes, at least `size`; never blocks."""
        if size <= FRAME_PIECE_BYTES:
            with self._lock:
                if self._free:
                    return self._free.pop()
            size = FRAME_PIECE_BYTES
        return empty([size], np.uint8)

    def give(self, memory: NDArray[np.uint8]) -> None:
        """Give the memory back; it must not be in use any longer."""
        if memory.size == FRAME_PIECE_BYTES:
            with self._lock:
                if len(self._free) < _KEPT:
                    self._free.append(memory)


class ReduceRun:
    """The native function that reduces and spreads pieces (collectives/protocols/proxy_queue.py)."""

    def __init__(self, support: LoadedImage) -> None:
        self._run = _REDUCE_RUN(support.address_of(proxy_queue.REDUCE_RUN))

    def __call__(
        self,
        targets: Sequence[int],
        sources: Sequence[int],
        size: int,
        *,
        reduction: int = 0,
        element: int = 1,
        streamed: int = 0,
    ) -> None:
        """Reduce `size` bytes at the sources and write them to all targets; a target may be a source."""
        to = (ctypes.c_void_p * len(targets))(*targets)
        of = (ctypes.c_void_p * len(sources))(*sources)
        self._run(
            ctypes.addressof(to), len(targets), ctypes.addressof(of), len(sources), size, reduction, element, streamed
        )
