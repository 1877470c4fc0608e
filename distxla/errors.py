"""Every error class of the project, and the class of its warnings.

All errors that a caller may catch derive from `DistxlaError`. They carry data, not only text, and survive pickling: the
constructor's parameters are exactly `args`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar

from distxla.location import Location, printable

if TYPE_CHECKING:
    from distxla.diagnosis.report.diagnosis import Diagnosis


class DistxlaError(Exception):
    """Base of every error that a caller may catch. `code` is stable; the wording is not.

    exit_status: what the command line returns for it (1 our own error, 2 bad module or input, 3 deadlock or mismatch,
    4 a replica was lost, 5 time limit).
    diagnosis: why devices could not go on, and the state of every one of them; None where there is nothing to tell.
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


class DistxlaWarning(UserWarning):
    """Something that a program is allowed to do, but that is rarely meant; the message says what to change."""


class HloSyntaxError(DistxlaError):
    """The text is not HLO: message names what was expected and what was found."""

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
    """A command line that distxla does not take; its notes propose corrections."""

    code = "usage"
    exit_status = 2


class CompileError(DistxlaError):
    """The compiler failed or its process died; the message names the instruction that was being lowered."""

    code = "compile"


class JaxError(DistxlaError):
    """JAX or jaxlib is missing, broken, or of a version in which a private name has moved."""

    code = "jax"


class PartitioningError(DistxlaError):
    """XLA's partitioner refuses a module, or its process ended; the message has XLA's own."""

    code = "partition"
    exit_status = 2


class ClusterError(DistxlaError):
    """The cluster could not be started, joined, or was used after it was closed."""

    code = "cluster"


class OutOfMemoryError(DistxlaError):
    """A program needs more than a device has, or than is left of it; the message says how much of each."""

    code = "memory"
    exit_status = 2


class DeadlockError(DistxlaError):
    """Devices wait for each other and none can ever go on.

    channel: on which a send, or a recv, waits for a transfer that no program makes; None for any other.
    near_misses: of such a send or recv, why others that lack their other side, too, are none for it: a sentence each.
    """

    code = "deadlock"
    exit_status = 3
    channel: int | None = None
    near_misses: tuple[str, ...] = ()


class CollectiveMismatchError(DeadlockError):
    """Members reached one round of a collective with different instructions, or wait for each other in different ones:
    a deadlock whose reason is known.

    pair: the two devices, where they reached one round or one transfer.
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
    frame: the message's header, where that could be verified; for the runtime's own use.
    """

    code = "damaged"
    frame: object = None


class TimeLimitError(DistxlaError):
    """The time limit that the caller gave ran out.

    phase: of the work, as in `checking`, `compiling`, `running`; None where nothing says so.
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


class NonFiniteError(DistxlaError):
    """A result has NaN, or Inf that the program made; raised after the call, where it is checked
    (docs/guide/checked_runs.md).

    kind: "NaN" or "Inf".  instruction: that made the first from operands without any; the argument, as `arg0`, or the
    constant, where that has it.  device: on which.  source: the user's own line, as `model.py:36:28 in loss`, where the
    metadata names it.  iterations: (name of the loop, iteration from 1) around it, outermost first.
    """

    code = "non-finite"
    kind: str = ""
    instruction: str = ""
    device: int = 0
    source: str | None = None
    iterations: tuple[tuple[str, int], ...] = ()


class ReplicationError(DistxlaError):
    """An array that is declared the same on several devices differs. Raised where it is checked: before the call for an
    argument, after it for a result and a value inside of the program.

    array: `out0`, `arg0`, the name of an instruction.  devices: that should have the same; differing: those that have
    another than the first.  index: of the first element that differs.
    """

    code = "replication"
    array: str = ""
    devices: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()
    index: tuple[int, ...] = ()


class InternalError(DistxlaError):
    """A bug in distxla."""

    code = "internal"


def raised(error: BaseException) -> str:
    """What was raised, `KeyError: 'x'`, for a sentence: without the notes, of which JAX adds one to all that it
    raises."""
    import traceback  # for failures only: the command line starts without it

    found = traceback.TracebackException(type(error), error, None)
    found.__notes__ = None
    return list(found.format_exception_only())[-1].strip()
