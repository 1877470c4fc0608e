"""Calls of C functions that report a status: API_VERSION_STATUS_RETURNING and API_VERSION_STATUS_RETURNING_UNIFIED.

    void f(void* out, const void** in, XlaCustomCallStatus*)
    void f(void* out, const void** in, const char* opaque, size_t opaque_len, XlaCustomCallStatus*)

They call XlaCustomCallStatusSetFailure and XlaCustomCallStatusSetSuccess, which this process defines for them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from distxla.ir.shape import Shape
from distxla.machine.global_symbols import define_symbols
from distxla.ops.custom_calls.ffi.handler import FfiError

STATUS_RETURNING: Final = "API_VERSION_STATUS_RETURNING"
STATUS_RETURNING_UNIFIED: Final = "API_VERSION_STATUS_RETURNING_UNIFIED"
FAILURE, SUCCESS = "XlaCustomCallStatusSetFailure", "XlaCustomCallStatusSetSuccess"
_STATUS_BYTES: Final = 64
_POINTER = ctypes.c_void_p
_SHORT = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)
_UNIFIED = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, ctypes.c_char_p, ctypes.c_size_t, _POINTER)

_messages: dict[int, str] = {}  # of failures, by the status's address
_defining = threading.Lock()
_defined: list[Any] = []  # the functions, which live as long as the process


class StatusError(FfiError):
    """A function has reported a failure; the message says which."""


def define_status_functions() -> None:
    """Define the functions that report a status, for libraries that are loaded from now on; once a process."""
    with _defining:
        if _defined:
            return
        failure = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, ctypes.c_size_t)(_fail)
        success = ctypes.CFUNCTYPE(None, _POINTER)(_succeed)
        found = {FAILURE: failure, SUCCESS: success}
        define_symbols({name: ctypes.cast(function, _POINTER).value or 0 for name, function in found.items()})
        _defined.extend(found.values())


def _fail(status: int, message: int, size: int) -> None:
    _messages[status] = ctypes.string_at(message, size).decode(errors="replace") if message else ""


def _succeed(status: int) -> None:
    _messages.pop(status, None)


class StatusCall:
    """A call's place in a program. address: of the function.  config: the text that a unified one gets.

    Leaves are numbered as in `FfiCall`; a tuple is a table of pointers, a token a null pointer.
    """

    def __init__(
        self, address: int, config: str | None, operands: Sequence[Shape], result: Shape, *, is_unified: bool
    ) -> None:
        self._function = (_UNIFIED if is_unified else _SHORT)(address)
        data = (config or "").encode()
        self._opaque = (data, len(data)) if is_unified else ()
        self._operands, self._result = Shape.tuple(tuple(operands)), result
        self._status = ctypes.create_string_buffer(_STATUS_BYTES)

    def __call__(self, operands: Sequence[int | None], results: Sequence[int | None]) -> None:
        """Run it on the buffers at these addresses. StatusError where it reports a failure."""
        keep: list[Any] = []
        given = _pointer(self._operands, iter(operands), keep)
        made = _pointer(self._result, iter(results), keep)
        status = ctypes.addressof(self._status)
        self._function(made, given, *self._opaque, status)
        message = _messages.pop(status, None)
        if message is not None:
            raise StatusError(f"failed: {message}")

    def close(self) -> None:
        """It keeps nothing."""


def _pointer(shape: Shape, addresses: Iterator[int | None], keep: list[Any]) -> int | None:
    if shape.elements is None:
        return next(addresses)
    table = (_POINTER * max(1, len(shape.elements)))(
        *(_pointer(element, addresses, keep) for element in shape.elements)
    )
    keep.append(table)
    return ctypes.addressof(table)


__all__ = ["STATUS_RETURNING", "STATUS_RETURNING_UNIFIED", "StatusCall", "StatusError", "define_status_functions"]
