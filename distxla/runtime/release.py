"""Poisoning a host from a thread of Python, in as little code as possible: no LLVM may be loaded here."""

from __future__ import annotations

import ctypes

from distxla.codegen.abi import Status
from distxla.collectives import control_block as control
from distxla.runtime.memory import ControlBlock

_SYS_FUTEX, _FUTEX_WAKE = 202, 1
_libc = ctypes.CDLL(None, use_errno=True)


def poison(block: ControlBlock, device: int | None = None) -> None:
    """Set the poison word and wake who waits for the end of the call and releases the others.

    device: one to be marked as gone.
    """
    if device is not None:
        block.words[(control.record_offset(device) + control.R_STATE) // 4] = control.DeviceState.GONE
    block.words[control.H_POISON // 4] = Status.RELEASED
    word = ctypes.c_void_p(block.segment.address + control.H_DONE)
    _libc.syscall(_SYS_FUTEX, word, _FUTEX_WAKE, 1 << 30, None, None, 0)
