"""Words of shared memory that threads sleep on. The C library has no function for them: each takes the number of the
system call, which is the processor's (see `targets/registry.py` for those that know it)."""

from __future__ import annotations

import ctypes

_WAIT, _WAKE, _ALL_SLEEPERS = 0, 1, 0x7FFFFFFF
_call = ctypes.CDLL(None, use_errno=True).syscall
_call.argtypes = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
)
_call.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


def sleep_on(call: int, address: int, value: int, seconds: float) -> None:
    """Sleep while the u32 at an address of this process is `value`, at most `seconds`; may return early."""
    limit = _Timespec(int(seconds), int(seconds % 1 * 1e9))
    _call(call, address, _WAIT, value, ctypes.addressof(limit), None, 0)


def wake_all(call: int, address: int) -> int:
    """Wake all threads that sleep on the u32 at an address of this process, which was changed before; how many."""
    return int(_call(call, address, _WAKE, _ALL_SLEEPERS, None, None, 0))
