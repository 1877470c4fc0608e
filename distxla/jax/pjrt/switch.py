"""What stubs and Python share."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Final


class Switch(ctypes.Structure):
    """main: the main thread, in which alone Python handles signals.  interrupts: SIGINT is to be handled once the main
    thread's stub has returned."""

    _fields_ = (("main", ctypes.c_uint64), ("interrupts", ctypes.c_uint32))
    main: int
    interrupts: int

    def is_interrupting(self) -> bool:
        """Whether an interrupt has ended a wait of this thread, and C++ has not given Python the chance to raise it:
        results that C++ gets now are never seen."""
        return bool(self.interrupts) and threading.get_ident() == self.main


SWITCH: Final = Switch(main=threading.main_thread().ident)


def _begin_anew() -> None:
    SWITCH.main, SWITCH.interrupts = threading.get_ident(), 0


os.register_at_fork(after_in_child=_begin_anew)

__all__ = ["SWITCH", "Switch"]
