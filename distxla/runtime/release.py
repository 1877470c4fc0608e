"""What a lost replica needs from the watch's thread, in as little code as possible: no LLVM may be loaded here."""

from __future__ import annotations

import ctypes

from distxla.codegen.abi import Status
from distxla.collectives import control_block as control
from distxla.runtime.memory import ControlBlock

_SYS_FUTEX, _FUTEX_WAKE = 202, 1
_libc = ctypes.CDLL(None, use_errno=True)


def release_after_loss(block: ControlBlock, device: int) -> None:
    """Mark the device as gone, set the poison word and wake the driver, which releases the others."""
    block.words[(control.record_offset(device) + control.R_STATE) // 4] = control.DeviceState.GONE
    block.words[control.H_POISON // 4] = Status.RELEASED
    word = ctypes.c_void_p(block.segment.address + control.H_DONE)
    _libc.syscall(_SYS_FUTEX, word, _FUTEX_WAKE, 1 << 30, None, None, 0)
