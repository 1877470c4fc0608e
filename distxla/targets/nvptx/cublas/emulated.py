"""The emulated cuBLAS as C functions: products of the emulated driver's memory, in the order of its queues."""

from __future__ import annotations

import ctypes
import itertools
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.driver.choice import emulated_driver
from distxla.targets.nvptx.driver.emulated.failure import Failure
from distxla.targets.nvptx.driver.emulated.library import EmulatedLibrary
from distxla.targets.nvptx.driver.emulated.memory import Memories
from distxla.targets.nvptx.interfaces import driver as driver_interface
from distxla.targets.nvptx.interfaces.cublas import (
    AS_IT_IS,
    DATA_TYPES,
    DEFAULT_ALGORITHM,
    FUNCTIONS,
    GEMM_PARAMETERS,
    INTERNAL_ERROR,
    INVALID_VALUE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    SUCCESS,
    SUMS_IN,
    SUMS_IN_FULL,
    TRANSPOSED,
)

_ELEMENTS = {
    DATA_TYPES["f32"]: np.dtype(np.float32),
    DATA_TYPES["f64"]: np.dtype(np.float64),
    DATA_TYPES["f16"]: np.dtype(np.float16),
    DATA_TYPES["bf16"]: np.dtype(ml_dtypes.bfloat16),
}
_SUMS: dict[int, np.dtype[Any]] = {SUMS_IN["f32"]: np.dtype(np.float32), SUMS_IN["f64"]: np.dtype(np.float64)}
_Array = NDArray[Any]


@dataclass(frozen=True)
class _Matrices:
    """batch column-major matrices [rows, columns] in the GPU's memory: at an address, with strides in elements."""

    element: np.dtype[Any]
    address: int
    batch: int
    rows: int
    columns: int
    leading: int
    stride: int

    @property
    def size(self) -> int:
        """Elements from the first to the last one."""
        return (self.batch - 1) * self.stride + (self.columns - 1) * self.leading + self.rows

    def of(self, elements: _Array) -> _Array:
        """The matrices [batch, rows, columns] within all these elements."""
        size = self.element.itemsize
        strides = self.stride * size, size, self.leading * size
        return np.lib.stride_tricks.as_strided(elements, (self.batch, self.rows, self.columns), strides)

    def read(self, memories: Memories) -> _Array:
        memory, offset = memories.find(self.address, self.size * self.element.itemsize)
        data = bytearray(self.size * self.element.itemsize)
        memory.read(offset, memoryview(data))
        return np.frombuffer(data, self.element)

    def write(self, memories: Memories, elements: _Array) -> None:
        memory, offset = memories.find(self.address, self.size * self.element.itemsize)
        memory.write(offset, memoryview(elements.tobytes()))


class EmulatedCublas:
    """`interface.Library`. Its functions are attributes. They work in the context of the calling thread.

    products: how many were computed.
    """

    def __init__(self, driver: EmulatedLibrary) -> None:
        self._driver = driver
        self._streams: dict[int, int | None] = {}
        self._handles = itertools.count(1)
        self.products = 0
        methods: tuple[Callable[..., int], ...] = (
            self._create,
            self._destroy,
            self._set_math_mode,
            self._set_stream,
            self._multiply,
        )
        for (name, types), method in zip(FUNCTIONS.items(), methods, strict=True):
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(_returning(method)))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _create(self, place: int) -> int:
        try:
            self._driver.current()
        except Failure as failure:
            return NOT_INITIALIZED if failure.number == driver_interface.INVALID_CONTEXT else INTERNAL_ERROR
        handle = next(self._handles)
        self._streams[handle] = None
        ctypes.c_void_p.from_address(place).value = handle
        return SUCCESS

    def _destroy(self, handle: int) -> int:
        if handle not in self._streams:
            return NOT_INITIALIZED
        del self._streams[handle]
        return SUCCESS

    def _set_math_mode(self, handle: int, mode: int) -> int:
        return SUCCESS if handle in self._streams and mode == SUMS_IN_FULL else INVALID_VALUE

    def _set_stream(self, handle: int, stream: int) -> int:
        if handle not in self._streams:
            return NOT_INITIALIZED
        self._streams[handle] = stream
        return SUCCESS

    def _multiply(self, handle: int, *values: Any) -> int:
        if handle not in self._streams:
            return NOT_INITIALIZED
        given = dict(zip(GEMM_PARAMETERS, values, strict=True))
        sums = _SUMS.get(given["computeType"])
        if sums is None or given["algo"] != DEFAULT_ALGORITHM or given["Ctype"] not in _ELEMENTS:
            return NOT_SUPPORTED
        if given["Atype"] != given["Btype"] or (given["Ctype"] == DATA_TYPES["f64"]) != (sums == np.float64):
            return NOT_SUPPORTED
        m, n, k = (given[name] for name in "mnk")
        a, b = _operand(given, "A", m, k), _operand(given, "B", k, n)
        c = _Matrices(_ELEMENTS[given["Ctype"]], given["C"], given["batchCount"], m, n, given["ldc"], given["strideC"])
        if a is None or b is None or given["ldc"] < m:
            return INVALID_VALUE
        alpha, beta = (
            np.frombuffer(ctypes.string_at(given[name], sums.itemsize), sums)[0] for name in ("alpha", "beta")
        )
        context, stream = self._driver.queue(self._streams[handle])

        def run() -> None:
            try:
                factors = [matrices.of(matrices.read(context.memories)).astype(sums) for matrices, _ in (a, b)]
                left, right = (f.swapaxes(1, 2) if t else f for f, (_, t) in zip(factors, (a, b), strict=True))
                result = c.read(context.memories)
                before = c.of(result)
                with np.errstate(all="ignore"):
                    product = alpha * np.matmul(left, right)
                    before[...] = product if beta == 0 else product + beta * before.astype(sums)
                c.write(context.memories, result)
            except Failure as failure:
                raise Failure(
                    driver_interface.ILLEGAL_ADDRESS, f"in a product of cuBLAS: {failure.detail}"
                ) from failure
            self.products += 1

        with context.lock:
            stream.add(run)
        return SUCCESS


def _operand(given: dict[str, Any], name: str, rows: int, columns: int) -> tuple[_Matrices, bool] | None:
    """The matrices as they are in memory, and whether they are used transposed; None for numbers that make no sense."""
    operation, leading = given[f"trans{name.lower()}"], given[f"ld{name.lower()}"]
    if operation not in (AS_IT_IS, TRANSPOSED) or given[f"{name}type"] not in _ELEMENTS:
        return None
    stored = (rows, columns) if operation == AS_IT_IS else (columns, rows)
    element = _ELEMENTS[given[f"{name}type"]]
    matrices = _Matrices(element, given[name], given["batchCount"], *stored, leading, given[f"stride{name}"])
    return None if leading < stored[0] else (matrices, operation == TRANSPOSED)


def _returning(method: Callable[..., int]) -> Callable[..., int]:
    """Nothing may pass through native frames."""

    def call(*arguments: Any) -> int:
        try:
            return method(*arguments)
        except BaseException:
            traceback.print_exc()
            return INTERNAL_ERROR

    return call


@cache
def emulated_cublas(driver: str) -> EmulatedCublas:
    """The one of this process, beside the emulated driver of that name."""
    return EmulatedCublas(emulated_driver(driver))
