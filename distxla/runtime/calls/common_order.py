"""Which executables run where several are called at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distxla.compiler.verify.world import verify_order, verify_together
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.runtime.arrays.executable import Executable
from distxla.scheduler.communication_order import order_communication
from distxla.time_limit import phase


def in_common_order(
    executables: list[Executable], counts: Counts, again: Callable[[Executable, Module], Executable]
) -> list[Executable]:
    """The executables to run for these at once: themselves, unless they must communicate in another order so that
    no device waits for ever (communication_order.py); then those that change are compiled `again`, once.

    Raises the errors of `verify_together` for programs that can't communicate.
    """
    key = tuple(executable.serial for executable in executables)
    first, *others = executables
    found = first.together.get(key)
    if found is None:
        found = _settled(executables, counts, again)
        first.keep_together(key, others, found)
    return [other or executable for executable, other in zip(executables, found, strict=True)]


def _settled(
    executables: list[Executable], counts: Counts, again: Callable[[Executable, Module], Executable]
) -> list[Executable | None]:
    with phase("ordering what devices do together"):
        modules = _ordered(executables, counts)
    return [
        None if module is None or module is executable.module else again(executable, module)
        for executable, module in zip(executables, modules, strict=True)
    ]


def _ordered(executables: Sequence[Executable], cluster: Counts) -> list[Module | None]:
    """For each executable the module to run, the same object where its order stays; None where the text isn't known.

    cluster: its counts. A program with a device assignment communicates within itself only; all others form
    one world. Raises the errors of `verify_together` for programs that can't communicate.
    """
    found: dict[int, Module] = {}
    for numbers, counts in _worlds(executables, cluster):
        world = [(executables[k].devices, module) for k in numbers if (module := executables[k].module) is not None]
        if len(world) < len(numbers):  # of programs that were compiled elsewhere the text isn't known
            continue
        assignment = executables[numbers[0]].program.assignment
        verify_together(world, counts, in_order=False, assignment=assignment)
        logical = world if assignment is None else [(tuple(range(len(assignment))), module) for _, module in world]
        order = order_communication(logical, counts)
        verify_order(list(zip([devices for devices, _ in logical], order.modules, strict=True)), counts)
        found.update(zip(numbers, order.modules, strict=True))
    return [found.get(k) for k in range(len(executables))]


def _worlds(executables: Sequence[Executable], counts: Counts) -> Iterator[tuple[list[int], Counts]]:
    """The numbers of the executables that know each other's devices, and the counts by which they name them."""
    common = [k for k, executable in enumerate(executables) if executable.program.assignment is None]
    if common:
        yield common, counts
    for k, executable in enumerate(executables):
        if executable.program.assignment is not None:
            yield [k], executable.program.counts
