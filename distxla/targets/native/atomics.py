"""Atomic accesses for Python: a page of machine code, in every process that asks. Needs no LLVM."""

from __future__ import annotations

import ctypes
from functools import cache

from distxla.machine.mappings import PAGE
from distxla.targets.native.load import make_executable, map_code
from distxla.targets.native.traits import own_traits
from distxla.targets.target import Atomics

# PYFUNCTYPE: they take nanoseconds, so the interpreter's lock stays with the caller
_READ = ctypes.PYFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_PUBLISH = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
_READ_LONG = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_PUBLISH_LONG = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
_COMPARE_EXCHANGE_LONG = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
_FENCE = ctypes.PYFUNCTYPE(None)

_FUNCTION_BYTES = 16


@cache
def mapped_atomics() -> Atomics:
    """Mapped until the process ends; OSError where memory or permission is missing."""
    functions = own_traits().atomics
    code = b"".join(body.ljust(_FUNCTION_BYTES, own_traits().trap) for body in functions.values())
    base = map_code(PAGE, -1, "atomic accesses")
    ctypes.memmove(base, code, len(code))
    make_executable(base, PAGE, "atomic accesses")
    places = {name: base + _FUNCTION_BYTES * number for number, name in enumerate(functions)}
    return Atomics(
        read=_READ(places["read"]),
        publish=_PUBLISH(places["publish"]),
        publish_fenced=_PUBLISH(places["publish_fenced"]),
        read_long=_READ_LONG(places["read_long"]),
        publish_long=_PUBLISH_LONG(places["publish_long"]),
        read_long_fenced=_READ_LONG(places["read_long_fenced"]),
        compare_exchange_long=_COMPARE_EXCHANGE_LONG(places["compare_exchange_long"]),
        fence=_FENCE(places["fence"]),
    )
