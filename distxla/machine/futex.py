"""Sleeping on a word of shared memory from Python, and waking who sleeps there; without LLVM."""

from __future__ import annotations

import ctypes

_SYS_FUTEX, _FUTEX_WAIT, _FUTEX_WAKE, _EVERYBODY = 202, 0, 1, 0x7FFFFFFF
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
)
_syscall.restype = ctypes.c_long


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


def sleep_on(address: int, value: int, seconds: float) -> None:
    """Sleep while the u32 at an address of this process is `value`, at most `seconds`; may return early."""
    limit = _Timespec(int(seconds), int(seconds % 1 * 1e9))
    _syscall(_SYS_FUTEX, address, _FUTEX_WAIT, value, ctypes.addressof(limit), None, 0)


def wake_all(address: int) -> None:
    """Wake everybody who sleeps on the u32 at an address of this process; its value was changed before."""
    _syscall(_SYS_FUTEX, address, _FUTEX_WAKE, _EVERYBODY, None, None, 0)
