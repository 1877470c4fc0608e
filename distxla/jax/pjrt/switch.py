"""State that native stubs and Python share: the main thread, and the exceptions that it is to raise."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Final


class Switch(ctypes.Structure):
    """main: the main thread, in which alone Python handles signals.  late: the exception, an object with a reference,
    that the main thread is to raise once C++ has returned; 0 for none (late.py).  interrupts: so is Ctrl-C, whose
    exception nobody has seen.  is_queued: whether Python was told to raise `late`: told twice, it could do so while the
    exception is on its way here again."""

    _fields_ = (
        ("main", ctypes.c_uint64),
        ("late", ctypes.c_uint64),
        ("interrupts", ctypes.c_uint32),
        ("is_queued", ctypes.c_uint32),
    )
    main: int
    late: int
    interrupts: int
    is_queued: int


SWITCH: Final = Switch(main=threading.main_thread().ident)


def _begin_anew() -> None:
    SWITCH.main, SWITCH.late, SWITCH.interrupts, SWITCH.is_queued = threading.get_ident(), 0, 0, 0


os.register_at_fork(after_in_child=_begin_anew)

__all__ = ["SWITCH", "Switch"]
