"""cuBLAS as this process uses it."""

from __future__ import annotations

import ctypes
import threading

from distxla.targets.nvptx.cublas.choice import VARIABLE, WITHOUT
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.interfaces.cublas import GEMM, STATUSES, SUCCESS, SUMS_IN_FULL, Library


class Cublas:
    """The library for one GPU. A thread has a handle of its own, since calls by one handle must not overlap.

    multiply: the host address of cublasGemmStridedBatchedEx.
    """

    def __init__(self, library: Library, name: str) -> None:
        """name: what messages call the library."""
        self._library, self._name = library, name
        self._handles: dict[int, int] = {}  # by thread
        self.multiply = ctypes.cast(getattr(library, GEMM), ctypes.c_void_p).value or 0

    def handle(self, stream: int) -> int:
        """The handle of the calling thread, which has the GPU's context; what it computes goes into that stream.

        The first one of a thread takes a tenth of a second, and memory of the GPU. DriverError where it can't be made.
        """
        thread = threading.get_ident()
        if thread not in self._handles:
            self._handles[thread] = self._created()
        handle = self._handles[thread]
        self._call("cublasSetStream_v2", handle, stream)
        return handle

    def error(self, function: str, number: int) -> DriverCallError:
        """Of a call that returned this cublasStatus_t."""
        name = f"CUBLAS_STATUS_{STATUSES.get(number, 'UNKNOWN')}"
        return DriverCallError(function, number, name, f"from {self._name}")

    def _created(self) -> int:
        handle = ctypes.c_void_p()
        try:
            self._call("cublasCreate_v2", ctypes.addressof(handle))
            self._call("cublasSetMathMode", handle, SUMS_IN_FULL)
        except DriverCallError as error:
            if handle:
                self._library.cublasDestroy_v2(handle)
            hint = f"with {VARIABLE}={WITHOUT} programs multiply without it"
            raise DriverError(f"cuBLAS can't be used: {error.message}; {hint}") from error
        return handle.value or 0

    def _call(self, function: str, *arguments: object) -> None:
        number = getattr(self._library, function)(*arguments)
        if number != SUCCESS:
            raise self.error(function, number)
