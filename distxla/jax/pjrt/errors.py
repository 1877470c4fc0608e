"""Failures as PJRT sees them: a code and a message."""

from __future__ import annotations

import re
import traceback
from typing import Final

from distxla.errors import (
    ArgumentError,
    CompileError,
    DistxlaError,
    ExecutionError,
    HloSyntaxError,
    InternalError,
    OutOfMemoryError,
    PartitioningError,
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
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

# what XLA's own messages begin with, where it refuses a module
_BY_NAME: Final = {
    "INVALID_ARGUMENT": INVALID_ARGUMENT,
    "RESOURCE_EXHAUSTED": RESOURCE_EXHAUSTED,
    "UNIMPLEMENTED": UNIMPLEMENTED,
    "NOT_FOUND": NOT_FOUND,
}
_STATED: Final = re.compile(r"XLA refuses the module: ([A-Z_]+):")
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
    (CompileError, INTERNAL),
    (ExecutionError, INTERNAL),
    (InternalError, INTERNAL),
    (PartitioningError, INTERNAL),
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


def error_of(failure: BaseException, entry: str = "") -> PjrtError:
    """The error for a failure of an entry point; one that is not ours has its name and the traceback in its message."""
    if isinstance(failure, StatusError):
        return PjrtError(failure.code, failure.message)
    for kind, code in _CODES:
        if isinstance(failure, kind):
            notes = "".join(f"\n{note}" for note in getattr(failure, "__notes__", ()))
            name = "" if isinstance(failure, DistxlaError) else f"{type(failure).__name__}: "
            return PjrtError(_stated_code(failure) or code, f"distxla: {name}{failure}{notes}")
    where = f" in {entry}" if entry else ""
    return PjrtError(INTERNAL, f"distxla: internal error{where}\n" + "".join(traceback.format_exception(failure)))


def _stated_code(failure: BaseException) -> int | None:
    """That with which XLA has refused a module; None for other failures."""
    found = _STATED.match(failure.message) if isinstance(failure, PartitioningError) else None
    return None if found is None else _BY_NAME.get(found[1])


def new_error(failure: BaseException, entry: str = "") -> int:
    """The handle of `error_of`. Forgets those that C++ has destroyed; other threads may, too."""
    for error in list(_held.values()):
        if error.record.is_destroyed and _held.pop(error.handle, None) is error:
            handles.release(error.handle)
    found = error_of(failure, entry)
    _held[found.handle] = found
    return found.handle


__all__ = ["INTERNAL", "Interrupted", "PjrtError", "StatusError", "error_of", "new_error"]
