"""Exceptions of signal handlers amid the plugin: raised once C++ has returned to Python, as what they are.

An error that C++ makes of such an exception would hide it, or end the process where C++ takes none. So the entry point
goes on, or is done again, and nobody sees what it gives: the main thread raises the exception as soon as Python goes
on.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any

from distxla.jax.pjrt.switch import SWITCH

_MARK = "_deferred_by_distxla"  # attribute of an exception: exceptions of Python's own classes have no weak references


def defer(error: BaseException) -> None:
    """Have the main thread raise it once C++ has returned; of several the first."""
    if SWITCH.late:
        return
    error.__dict__[_MARK] = True
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
    SWITCH.late = id(error)


def is_late() -> bool:
    """Whether an exception of this thread is to be raised: C++ has not given Python the chance, and results that it
    gets now are never seen."""
    return bool(SWITCH.late or SWITCH.interrupts) and threading.get_ident() == SWITCH.main


def ends_calls() -> bool:
    """Whether that is Ctrl-C, which ends the calls under way."""
    address = SWITCH.late  # until the main thread, which this is, has raised it
    return is_late() and (not address or isinstance(ctypes.cast(address, ctypes.py_object).value, KeyboardInterrupt))


def is_of_handler(error: BaseException | None) -> bool:
    """Whether the handler of a signal has raised the exception, or it was deferred before."""
    if error is None or threading.get_ident() != SWITCH.main:
        return False
    if isinstance(error, KeyboardInterrupt) or id(error) == SWITCH.late:
        return True
    codes, trace = set(_handler_codes()), error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def was_deferred(error: BaseException | None) -> bool:
    """Whether the main thread has raised the exception here because it was deferred."""
    return error is not None and _MARK in error.__dict__ and threading.get_ident() == SWITCH.main


def _handler_codes() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)  # of a method
        for function in (handler, vars(type(handler)).get("__call__")):  # or of an object that can be called
            if isinstance(code := getattr(function, "__code__", None), CodeType):
                yield code


__all__ = ["defer", "ends_calls", "is_late", "is_of_handler", "was_deferred"]
