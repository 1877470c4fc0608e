"""Failures as PJRT sees them: a code and a message."""

from __future__ import annotations

import traceback
from typing import Final

from distxla.errors import (
    ArgumentError,
    DistxlaError,
    HloSyntaxError,
    OutOfMemoryError,
    ReplicaLostError,
    TimeLimitError,
    UnsupportedOpError,
    UsageError,
    VerificationError,
)
from distxla.jax.pjrt import handles
from distxla.jax.pjrt.handles import CBytes
from distxla.jax.pjrt.table import RECORDS

CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

# the first class that the error is of
_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (ArgumentError, INVALID_ARGUMENT),
    (UsageError, INVALID_ARGUMENT),
    (HloSyntaxError, INVALID_ARGUMENT),
    (VerificationError, INVALID_ARGUMENT),
    (UnsupportedOpError, UNIMPLEMENTED),
    (NotImplementedError, UNIMPLEMENTED),
    (OutOfMemoryError, RESOURCE_EXHAUSTED),
    (MemoryError, RESOURCE_EXHAUSTED),
    (TimeLimitError, DEADLINE_EXCEEDED),
    (ReplicaLostError, UNAVAILABLE),
    (KeyboardInterrupt, CANCELLED),
    (InterruptedError, CANCELLED),
    (DistxlaError, FAILED_PRECONDITION),
)


class Interrupted(BaseException):
    """A signal handler has raised while an entry point waited for a call; its exception was deferred (late.py). C++
    hears of no error, which would hide that; nothing sees the results before it is raised."""


class StatusError(Exception):
    """A failure that C++ has told. code: PJRT's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


class PjrtError:
    """An error that C++ holds. code: PJRT's.  Its functions are native: C++ asks for the message of an interrupt while
    Python would raise that."""

    __slots__ = ("code", "handle", "message", "record")

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = CBytes(message)
        self.record = RECORDS["Error"](None, code, self.message.address, self.message.size, False)
        self.handle = handles.bind(self, self.record)


_held: Final[dict[int, PjrtError]] = {}  # by handle, until C++ has destroyed them


def error_of(failure: BaseException) -> PjrtError:
    """The error for a failure; one that is not ours has the traceback in its message."""
    if isinstance(failure, StatusError):
        return PjrtError(failure.code, failure.message)
    for kind, code in _CODES:
        if isinstance(failure, kind):
            notes = "".join(f"\n{note}" for note in getattr(failure, "__notes__", ()))
            name = "" if isinstance(failure, DistxlaError) else f"{type(failure).__name__}: "
            return PjrtError(code, f"distxla: {name}{failure}{notes}")
    return PjrtError(INTERNAL, "distxla: internal error\n" + "".join(traceback.format_exception(failure)))


def new_error(failure: BaseException) -> int:
    """The handle of the error for a failure. Forgets those that C++ has destroyed; other threads may, too."""
    for error in list(_held.values()):
        if error.record.is_destroyed and _held.pop(error.handle, None) is error:
            handles.release(error.handle)
    found = error_of(failure)
    _held[found.handle] = found
    return found.handle


__all__ = ["INTERNAL", "Interrupted", "PjrtError", "StatusError", "error_of", "new_error"]
