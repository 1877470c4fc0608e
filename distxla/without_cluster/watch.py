"""The values of chosen instructions in a run of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distxla.errors import ArgumentError
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.similar_words import did_you_mean, nearest

if TYPE_CHECKING:
    from distxla.oracle.evaluation import Device, InstructionEvaluation


class WatchedValue(NamedTuple):
    """One execution of an instruction. value: an array, a tuple of values, None for a token and for what is still in
    flight.  iterations: the numbers, from 1, of the iterations of the loops around it, outermost first."""

    value: Any
    iterations: tuple[int, ...]


class Watch:
    """Keeps the values of chosen instructions while `distxla.reference` runs.

        watch = distxla.Watch("dot.3", "all-reduce*", devices=[0, 1])
        distxla.reference(module, args, watch=watch)
        for value, iterations in watch.values["dot.3"][0]:      # on device 0, in order of executions
            ...

    names: of instructions, or patterns of them with `*`, `?` and `[…]`; none for all.  where: a function of an
    instruction (`name`, `opcode`, `shape`, `operands`, `metadata`), which says whether it is chosen.  devices:
    flattened ids, all by default.

    values: by name and device a list of `WatchedValue`s, arrays of their own; those of the last run. Instructions of
    one name in several computations share a list. Names are those of the executed form: collectives that a schedule
    spreads over fusions, and asynchronous computations of more than one collective, are rewritten there, as
    `distxla check` counts them. Parameters of the entry are seen as one value on each device; those of other
    computations are the callers' operands. Computations of scalars that an op applies to elements, as a reduction's,
    are a part of that op and aren't seen.
    """

    def __init__(
        self,
        *names: str,
        where: Callable[[Instruction], bool] | None = None,
        devices: int | Iterable[int] | None = None,
    ) -> None:
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None:
            raise ArgumentError(f"Watch: expected names of instructions, found {wrong!r:.60}")
        if where is not None and not callable(where):
            raise ArgumentError(f"where: expected a function of an instruction, found {where!r:.60}")
        self.names = names
        self.values: dict[str, dict[int, list[WatchedValue]]] = {}
        self._where = where
        chosen: Any = (devices,) if isinstance(devices, Integral) else devices
        if chosen is not None and (not isinstance(chosen, Iterable) or isinstance(chosen, str)):
            raise ArgumentError(f"devices: expected flattened ids, found {devices!r:.60}")
        self.devices = None if chosen is None else frozenset(chosen)
        self._chosen: dict[int, tuple[Instruction, bool]] = {}  # by identity: comparing instructions takes long

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:4])) + (", …" if len(self.names) > 4 else "")
        count = sum(len(found) for by_device in self.values.values() for found in by_device.values())
        return f"Watch({names}): {count} value{'' if count == 1 else 's'} of {len(self.values)} instructions"

    # --- what the reference asks

    def begin(self, device: Device, arguments: tuple[Any, ...]) -> None:
        """A device begins: the values that it had in an earlier run are dropped."""
        for by_device in self.values.values():
            by_device.pop(device.id, None)
        self.values = {name: by_device for name, by_device in self.values.items() if by_device}
        for parameter, value in zip(device.module.entry_computation.parameters, arguments):
            self._keep(device.id, parameter, value, ())

    def value(self, run: InstructionEvaluation, operands: Sequence[Any], value: Any) -> Any:
        """An instruction has been executed; the value stays as it is."""
        self._keep(run.device.id, run.instruction, value, None, run)
        return value

    def _keep(
        self,
        device: int,
        instruction: Instruction,
        value: Any,
        iterations: tuple[int, ...] | None,
        run: InstructionEvaluation | None = None,
    ) -> None:
        if (self.devices is not None and device not in self.devices) or not self._chooses(instruction):
            return
        if iterations is None:
            assert run is not None
            iterations = tuple(loop.iterations for loop in run.world.loops)
        found = self.values.setdefault(instruction.name, {}).setdefault(device, [])
        found.append(WatchedValue(_copied(value), iterations))

    def _chooses(self, instruction: Instruction) -> bool:
        known = self._chosen.get(id(instruction))
        if known is None or known[0] is not instruction:
            is_named = not self.names or any(fnmatchcase(instruction.name, name) for name in self.names)
            known = (instruction, is_named and (self._where is None or bool(self._where(instruction))))
            self._chosen[id(instruction)] = known
        return known[1]

    def require_matches(self, modules: Iterable[Module], devices: int) -> None:
        """ArgumentError where a name matches no instruction of these modules, in the form that is executed, or a device
        is none of the run's. devices: how many there are."""
        wrong = next((d for d in self.devices or () if not isinstance(d, Integral) or not 0 <= int(d) < devices), None)
        if wrong is not None:
            raise ArgumentError(f"Watch: there is no device {wrong!r} among {devices}")
        known = {i.name for module in modules for computation in module.computations for i in computation}
        for name in self.names:
            if not any(fnmatchcase(other, name) for other in known):
                error = ArgumentError(f"Watch: no instruction is named {name!r}")
                if (like := nearest(name, known)) is not None:
                    error.add_note(did_you_mean(like))
                raise error


def _copied(value: Any) -> Any:
    """The value by itself: others may be views of the caller's arrays."""
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return np.array(value) if isinstance(value, np.ndarray | np.generic) else None
