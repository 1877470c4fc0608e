"""What stubs and Python share."""

from __future__ import annotations

import ctypes
from typing import Final


class Switch(ctypes.Structure):
    """interrupts: SIGINT is to be handled once the stub has returned. While it is set in an entry point, an interrupt
    has ended a wait, and C++ has not given Python the chance to raise it: results that C++ gets now are never seen."""

    _fields_ = (("interrupts", ctypes.c_uint32),)
    interrupts: int


SWITCH: Final = Switch()

__all__ = ["SWITCH", "Switch"]
