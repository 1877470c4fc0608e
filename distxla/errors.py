"""Every error class of the project, and the place in the user's text that an error points to.

All errors that a caller may catch derive from `DistxlaError`. They carry data, not only text, and survive pickling: the
constructor's parameters are exactly `args`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from distxla.diagnosis.diagnosis import Diagnosis


@dataclass(frozen=True, slots=True)
class Location:
    """A stretch of one line of a module's text, and where the metadata tells it, of the user's own program.

    file: as the user named it (`<string>` for parsed text).  line, column: from 1.  end_column: exclusive, at least
    column + 1.  text: the whole source line, for the caret.  frame: `model.py:36:28 in loss`, from metadata, or None.
    """

    file: str
    line: int
    column: int
    end_column: int
    text: str = ""
    frame: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def shown(self) -> list[str]:
        """The source line with a caret, and the user's own frame, as lines to put below a message."""
        lines = []
        if self.text:
            text, column, end = _excerpt(self.text, self.column, self.end_column)
            lines += [f"    {text}", f"    {' ' * (column - 1)}{'^' * max(1, end - column)}"]
        if self.frame:
            lines.append(f"    from {self.frame}")
        return lines


class DistxlaError(Exception):
    """Base of every error that a caller may catch. `code` is stable; the wording is not.

    exit_status: what the command line returns for it (1 our own error, 2 bad module or input, 3 deadlock or mismatch,
    4 a replica was lost, 5 time limit).
    diagnosis: why devices could not go on, and what every one of them did; None where there is nothing to tell.
    """

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1
    diagnosis: Diagnosis | None = None

    def __init__(self, message: str, location: Location | None = None) -> None:
        super().__init__(message, location)
        self.message = message
        self.location = location

    @property
    def report(self) -> Diagnosis | None:
        """The old name of `diagnosis`."""
        warnings.warn("DistxlaError.report is now DistxlaError.diagnosis", DeprecationWarning, stacklevel=2)
        return self.diagnosis

    def __str__(self) -> str:
        """`file:line:column: code: message`, then the source line with a caret, the user's own frame, the diagnosis."""
        text = self._located()
        if self.diagnosis is not None and (found := self.diagnosis.text()):
            text += f"\n{found}"
        return printable(text)

    def _located(self) -> str:
        where = self.location
        if where is None:
            return f"{self.code}: {self.message}"
        return "\n".join([f"{where}: {self.code}: {self.message}", *where.shown()])


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey: names, paths and frames come from other people's files."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _excerpt(text: str, column: int, end: int, width: int = 160) -> tuple[str, int, int]:
    """Cut a long source line to `width` characters around the caret; control characters become spaces."""
    text = "".join(c if c.isprintable() else " " for c in text)
    start = 0
    if len(text) > width and column > width // 2:
        start = column - width // 2
    cut = text[start : start + width]
    column, end = column - start, min(end - start, len(cut) + 1)
    if start:
        cut = "..." + cut[3:]
    return cut.rstrip(), column, max(end, column + 1)


class HloSyntaxError(DistxlaError):
    """The text is not HLO: message says what was expected and what was found."""

    code = "syntax"
    exit_status = 2


class VerificationError(DistxlaError):
    """The module is HLO text but breaks a rule; the message begins with the rule's id, as in `transpose.C2`."""

    code = "verify"
    exit_status = 2


class UnsupportedOpError(DistxlaError):
    """A valid instruction that this version cannot execute; raised before anything starts."""

    code = "unsupported"
    exit_status = 2


class ArgumentError(DistxlaError):
    """Arguments, counts, files or options that do not fit the module."""

    code = "argument"
    exit_status = 2


class UsageError(DistxlaError):
    """A command line that distxla does not take; its notes propose what may have been meant."""

    code = "usage"
    exit_status = 2


class CompileError(DistxlaError):
    """The compiler failed or its process died; the message names the instruction that was being lowered."""

    code = "compile"


class ClusterError(DistxlaError):
    """The cluster could not be started, joined, or was used after it was closed."""

    code = "cluster"


class OutOfMemoryError(DistxlaError):
    """What a program needs is more than a device has, or than is left of it; the message says how much of each."""

    code = "memory"
    exit_status = 2


class DeadlockError(DistxlaError):
    """Devices wait for each other and none can ever go on.

    channel: on which a send, or a recv, waits for what no program does; None for any other.
    """

    code = "deadlock"
    exit_status = 3
    channel: int | None = None


class CollectiveMismatchError(DeadlockError):
    """Members came to one round of a collective with different instructions, or wait for each other in different ones:
    a deadlock whose reason is known.

    pair: the two devices, where they came to one round or one transfer.
    """

    code = "mismatch"
    pair: tuple[int, int] | None = None


class ReplicaLostError(DistxlaError):
    """The process of a replica ended while the cluster was in use."""

    code = "lost"
    exit_status = 4


class DamagedMessageError(ReplicaLostError):
    """A message between hosts was damaged, repeated or lost: names the hosts and the message.

    No result was computed from it. The cluster can't be used any more.
    frame: what the message's header said, where that could be verified; for the runtime's own use.
    """

    code = "damaged"
    frame: object = None


class TimeLimitError(DistxlaError):
    """The time limit that the caller gave ran out.

    phase: what was being done, as in `checking`, `compiling`, `running`; None where nothing says so.
    """

    code = "time-limit"
    exit_status = 5
    phase: str | None = None


class StreamEndError(DistxlaError):
    """A program wanted an item of an infeed, or of a host's channel, that the host had closed before.

    Like other errors that depend on how far a program gets, and unlike those of input files, it is none of status 2.
    """

    code = "stream-end"


class ExecutionError(DistxlaError):
    """A program stopped with an error of its own on some device."""

    code = "execution"


class InternalError(DistxlaError):
    """A bug in distxla."""

    code = "internal"
