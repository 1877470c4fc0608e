"""The signals of faults, which end this process: a native function sees them first."""

from __future__ import annotations

import ctypes
import mmap
import signal

FAULT_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_SA_SIGINFO, _SA_ONSTACK, _SA_NODEFER, _SA_RESETHAND = 4, 0x08000000, 0x40000000, 0x80000000
_STACK_BYTES = 64 << 10


class _Action(ctypes.Structure):
    """struct sigaction of glibc, for 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_uint32),
        ("restorer", ctypes.c_void_p),
    )


class _Stack(ctypes.Structure):
    """stack_t."""

    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def note_faults(handler: int, earlier: int) -> None:
    """Let the native function at `handler` see the signals that end this process, which they do after it.

    earlier: where the address of the handler goes that they have had so far, the same one for all; 0 if there was none.
    A program that uses up its stack is only noted in threads that have called `own_signal_stack`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _SA_SIGINFO | _SA_ONSTACK | _SA_NODEFER | _SA_RESETHAND
    had = _Action()
    for number in FAULT_SIGNALS:
        if libc.sigaction(int(number), ctypes.byref(_Action(handler=handler, flags=flags)), ctypes.byref(had)):
            raise OSError(ctypes.get_errno(), f"no handler can be set for {number.name}")
    ctypes.c_void_p.from_address(earlier).value = had.handler


def own_signal_stack() -> object:
    """Give the calling thread a stack for signal handlers; the returned object must live as long as the thread."""
    memory = mmap.mmap(-1, _STACK_BYTES)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sigaltstack(ctypes.byref(_Stack(base=base, flags=0, size=_STACK_BYTES)), None):
        raise OSError(ctypes.get_errno(), "no stack for signal handlers can be set")
    return memory
