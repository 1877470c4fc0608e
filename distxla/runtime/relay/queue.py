"""The relay's end of the queue in the control block (collectives/relay_queue.py), and words that devices sleep on."""

from __future__ import annotations

import ctypes

from distxla.collectives import control_block as control
from distxla.collectives import relay_queue
from distxla.runtime.memory import ControlBlock

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


def sleep_on(address: int, expected: int, seconds: float) -> None:
    """Sleep while the u32 at an address is `expected`, at most `seconds`, or until somebody wakes its sleepers."""
    limit = _Timespec(int(seconds), int(seconds % 1 * 1e9))
    _syscall(_SYS_FUTEX, address, _FUTEX_WAIT, expected, ctypes.addressof(limit), None, 0)


def wake_all(address: int) -> None:
    """Wake everybody who sleeps on the u32 at an address; its value was changed before."""
    _syscall(_SYS_FUTEX, address, _FUTEX_WAKE, _EVERYBODY, None, None, 0)


class Queue:
    """What devices leave to the relay. Made before they run: it sets up the ring; only its owner takes from it."""

    def __init__(self, block: ControlBlock) -> None:
        self._words, self._longs = block.words, block.longs
        self._address = block.segment.address + control.H_RELAY_POSTED
        offset = (block.segment.size - relay_queue.RING_BYTES) // control.HEADER_BYTES * control.HEADER_BYTES
        self._ring = offset // 8
        self._next = block.words[control.H_RELAY_TICKETS // 4]
        block.longs[control.H_RELAY_RING // 8] = offset

    def take(self, seconds: float) -> tuple[int, int, int] | None:
        """(offset in the control block, Event, its number) of the next entry; None if none came within `seconds`."""
        while True:
            posted = self._words[control.H_RELAY_POSTED // 4]
            place = self._ring + self._next % relay_queue.ENTRIES
            entry = self._longs[place]
            if entry:
                self._longs[place] = 0
                self._next = (self._next + 1) & 0xFFFFFFFF
                place = entry & 0xFFFFFFFF
                return place & ~relay_queue.EVENT_MASK, place & relay_queue.EVENT_MASK, entry >> 32
            if seconds <= 0:
                return None
            sleep_on(self._address, posted, seconds)
            seconds = 0.0 if self._words[control.H_RELAY_POSTED // 4] == posted else seconds

    def wake(self) -> None:
        """Let a `take` that sleeps in another thread return."""
        wake_all(self._address)
