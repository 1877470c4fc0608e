"""Checks of calls that a program is compiled for: `nan`, where NaN and Inf come from; `replication`, whether arrays are
the same on all devices that are declared to have the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.program.host_call_site import FunctionKey
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.host import DeviceMemory
from distxla.similar_words import did_you_mean, nearest

if TYPE_CHECKING:
    from distxla.runtime.checks.declared_values import SameValues

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


def with_same_values(
    checks: Collection[str], module: Module, counts: Counts, functions: Mapping[FunctionKey, Callable[..., Any]]
) -> tuple[SameValues | None, Module, Mapping[FunctionKey, Callable[..., Any]]]:
    """The module as it gives the values that are declared the same to the driver, with the functions of its host calls;
    None, and what was given, where there are no such values, or `checks` doesn't ask for them."""
    if REPLICATION not in checks:
        return None, module, functions
    from distxla.runtime.checks.declared_values import SameValues

    values = SameValues(module, counts)
    if not values:
        return None, module, functions
    module, more = values.giving()
    merged: dict[FunctionKey, Callable[..., Any]] = {**functions}
    merged.update(more)
    return values, module, merged


def begin_checks(executables: Iterable[Executable], memory: Memory) -> None:
    """Before a call: nothing is noted. ReplicationError for arguments."""
    for executable in executables:
        if REPLICATION in executable.checks:
            from distxla.runtime.checks.replication import require_replicated

            require_replicated(executable, memory, results=False)
            if executable.same_values is not None:
                executable.same_values.begin()
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

            found = NonFinite(executable, {device: memory(device) for device in executable.devices}).error()
            if found is not None:
                raise found
        if REPLICATION in executable.checks:
            from distxla.runtime.checks.replication import known_placements, require_replicated

            if executable.same_values is not None:
                error = executable.same_values.error(known_placements(executable))
                if error is not None:
                    raise error
            require_replicated(executable, memory, results=True)


__all__ = ["CHECKS", "NAN", "REPLICATION", "begin_checks", "checks_of", "end_checks"]
