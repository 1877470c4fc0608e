"""The native functions of native_calls.py in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, Final

from distxla.jax.pjrt.events import READY
from distxla.jax.pjrt.kept_code import loaded
from distxla.jax.pjrt.native_calls import ENTRY_POINTS, NativeCalls
from distxla.jax.pjrt.native_events import READY_EVENT
from distxla.jax.pjrt.native_launches import NativeLaunches
from distxla.jax.pjrt.native_module import NativeModule

_POINTER: Final = ctypes.c_void_p
_QUICK: Final = ctypes.PYFUNCTYPE  # with the GIL: they take no longer than a moment, and call nothing
_LONG: Final = ctypes.CFUNCTYPE


class _Compiled:
    """The functions of a module, whose code lives as long."""

    def __init__(self, native: NativeModule, records: Mapping[str, int]) -> None:
        """records: addresses of what Python has, by the names that it has in the module."""
        self._engine = loaded(str(native.module), dict(records))

    def _address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))

    def _quick(self, name: str, *types: Any) -> Any:
        return _QUICK(*types)(self._address(name))


class LaunchFunctions(_Compiled):
    """Those of calls of several processes (native_launches.py). start: address of `call_launch`."""

    def __init__(self) -> None:
        super().__init__(NativeLaunches(), {})
        u32, u64 = ctypes.c_uint32, ctypes.c_uint64
        self.start = self._address("call_launch")
        self.count = self._quick("launch_count", None, _POINTER, _POINTER)
        self.issue = self._quick("launch_issue", u32, _POINTER, u64, u64, u32, u32)
        self.arrive = self._quick("launch_arrive", u32, _POINTER, u64, u64, u32)


class NativeFunctions(_Compiled):
    """entry_points: addresses of those that stubs try first, by name."""

    def __init__(self) -> None:
        super().__init__(NativeCalls(), {READY_EVENT: READY.handle})
        self.entry_points = {name: self._address(f"try_{name}") for name in ENTRY_POINTS}
        self.gate_close = self._quick("gate_close", None, _POINTER)
        self.gate_open = self._quick("gate_open", None, _POINTER)
        self.gate_bar = self._quick("gate_bar", None, _POINTER, ctypes.c_uint32)
        self.gate_take = self._quick("gate_take", None, _POINTER)
        self.gate_trim = self._quick("gate_trim", None, _POINTER, _POINTER, _POINTER)
        self.buffer_take = self._quick("buffer_take", None, _POINTER)
        self.block_release = self._quick("block_release", None, _POINTER, _POINTER)
        self.gate_await = _LONG(ctypes.c_int32, _POINTER, ctypes.c_uint32, ctypes.c_int64)(self._address("gate_await"))
        self.call_execute = _LONG(None, _POINTER, ctypes.c_int32, _POINTER)(self._address("call_execute"))
        self.gate_retire = _LONG(None, _POINTER)(self._address("gate_retire"))
        self.gate_watch = _LONG(ctypes.c_int32, _POINTER)(self._address("gate_watch"))

    @cached_property
    def launches(self) -> LaunchFunctions:
        """Compiled at their first use."""
        return LaunchFunctions()


@cache
def native_functions() -> NativeFunctions:
    """Those of the process, which live as long as it: C++ has them when Python's modules are gone."""
    found = NativeFunctions()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return found


__all__ = ["LaunchFunctions", "NativeFunctions", "native_functions"]
