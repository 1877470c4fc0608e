"""The native functions of native_calls.py in this process."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

from distxla.jax.pjrt.events import READY
from distxla.jax.pjrt.kept_code import loaded
from distxla.jax.pjrt.native_calls import ENTRY_POINTS, NativeCalls
from distxla.jax.pjrt.native_events import READY_EVENT

_POINTER: Final = ctypes.c_void_p
_QUICK: Final = ctypes.PYFUNCTYPE  # with the GIL: they take no longer than a moment, and call nothing
_LONG: Final = ctypes.CFUNCTYPE


class NativeFunctions:
    """entry_points: addresses of those that stubs try first, by name."""

    def __init__(self) -> None:
        self._engine = loaded(str(NativeCalls().module), {READY_EVENT: READY.handle})  # the code lives as long
        self.entry_points = {name: self._address(f"try_{name}") for name in ENTRY_POINTS}
        self.gate_close = self._quick("gate_close", None, _POINTER)
        self.gate_open = self._quick("gate_open", None, _POINTER)
        self.gate_take = self._quick("gate_take", None, _POINTER)
        self.gate_trim = self._quick("gate_trim", None, _POINTER, _POINTER, _POINTER)
        self.buffer_take = self._quick("buffer_take", None, _POINTER)
        self.block_release = self._quick("block_release", None, _POINTER, _POINTER)
        self.call_execute = _LONG(None, _POINTER, ctypes.c_int32, _POINTER)(self._address("call_execute"))
        self.gate_retire = _LONG(None, _POINTER)(self._address("gate_retire"))
        self.gate_watch = _LONG(ctypes.c_int32, _POINTER)(self._address("gate_watch"))

    def _address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))

    def _quick(self, name: str, *types: Any) -> Any:
        return _QUICK(*types)(self._address(name))


@cache
def native_functions() -> NativeFunctions:
    """Those of the process, which live as long as it: C++ has them when Python's modules are gone."""
    found = NativeFunctions()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return found


__all__ = ["NativeFunctions", "native_functions"]
