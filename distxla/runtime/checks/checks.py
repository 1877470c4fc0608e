"""Checks of calls that a program is compiled for: `nan`, where NaN and Inf come from; `replication`, whether arrays are
the same on all devices that are declared to have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from distxla.errors import ArgumentError
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.host import DeviceMemory
from distxla.similar_words import did_you_mean, nearest

NAN, REPLICATION = "nan", "replication"
CHECKS = (NAN, REPLICATION)
Memory = Callable[[int], DeviceMemory]


def checks_of(check: str | Iterable[str] | None, option: str = "check") -> frozenset[str]:
    """The names of checks, from one, several, or several in a string, with commas between. ArgumentError for others."""
    names = check.split(",") if isinstance(check, str) else list(check or ())
    found = [name.strip() if isinstance(name, str) else name for name in names]
    for name in found:
        if name not in CHECKS:
            error = ArgumentError(f"{option}: expected {' or '.join(CHECKS)}, found {name!r}")
            near = nearest(name, CHECKS) if isinstance(name, str) else None
            if near is not None:
                error.add_note(did_you_mean(near))
            raise error
    return frozenset(found)


def begin_checks(executables: Iterable[Executable], memory: Memory) -> None:
    """Before a call: nothing is noted. ReplicationError for arguments."""
    for executable in executables:
        if REPLICATION in executable.checks:
            from distxla.runtime.checks.replication import require_replicated

            require_replicated(executable, memory, results=False)
        watch = executable.program.debug.watch
        if watch is not None and executable.arena is not None:
            zeros = np.zeros(4 * watch.words, np.uint8)
            for device in executable.devices:
                memory(device).write(executable.arena.offset + watch.offset, zeros)


def end_checks(executables: Sequence[Executable], memory: Memory) -> None:
    """After a call: NonFiniteError and ReplicationError, as far as its programs are checked for them."""
    for executable in executables:
        if executable.program.debug.watch is not None:
            from distxla.runtime.checks.non_finite import NonFinite

            error = NonFinite(executable, {device: memory(device) for device in executable.devices}).error()
            if error is not None:
                raise error
        if REPLICATION in executable.checks:
            from distxla.runtime.checks.replication import require_replicated

            require_replicated(executable, memory, results=True)


__all__ = ["CHECKS", "NAN", "REPLICATION", "begin_checks", "checks_of", "end_checks"]
