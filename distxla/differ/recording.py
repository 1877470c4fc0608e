"""Every array that a run computes, on every device, and which arrays it was made of."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distxla.differ.value_store import Stored, ValueStore
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.lazy_dataclass import dataclass, field
from distxla.oracle.evaluation import Device, InstructionEvaluation
from distxla.oracle.waits import Pending

Array = np.ndarray[Any, Any]
Iterations = tuple[int, ...]
Key = tuple[int, int, Iterations, int]  # instruction, leaf, iterations of the loops around it, which execution of these

Makers = dict[int, tuple[Any, int]]  # by the array's id: a weak reference to it, and its number
Change = Callable[[InstructionEvaluation, Sequence[Any], Any], Any]
PASSING = (Lowering.ALIAS, Lowering.CONTROL, Lowering.CALL)  # their results are arrays that are recorded already


@dataclass(eq=False)
class Recorded:
    """One array: a leaf of the result of one execution of an instruction, on all devices that executed it.

    number: the place in the order of execution.  argument: the number of the entry's argument that it is, else None.
    iterations: of the loops around it, outermost first, from 0.  loops: those loops' names.
    made_of: numbers of the arrays that the instruction took, in operand order; they, dims and dtype as on the first
    device.  values: by device.
    """

    number: int
    instruction: Instruction
    module: Module
    leaf: int
    iterations: Iterations
    loops: tuple[str, ...]
    made_of: tuple[int, ...]
    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    values: dict[int, Stored] = field(default_factory=dict)
    argument: int | None = None

    def on(self, device: int) -> Array:
        return self.values[device].array()

    def arrays(self) -> list[Array]:
        """By device, ascending."""
        return [self.values[device].array() for device in sorted(self.values)]


class Recording:
    """A `Watch` of the reference that keeps what it sees.

    store: holds the arrays.  change: makes another value of the one that was computed, for a run with perturbed values.
    """

    def __init__(
        self, store: ValueStore, change: Callable[[InstructionEvaluation, Sequence[Any], Any], Any] | None = None
    ):
        self.arrays: list[Recorded] = []
        self._store, self._change = store, change
        self._by_key: dict[Key, Recorded] = {}
        self._executions: dict[tuple[int, int, int, Iterations], int] = {}
        self._makers: defaultdict[int, dict[int, tuple[Any, int]]] = defaultdict(
            dict
        )  # by device, then id of the array

    def begin(self, device: Device, arguments: tuple[Any, ...]) -> None:
        leaf = 0
        for parameter, value in zip(device.module.entry_computation.parameters, arguments, strict=True):
            for array in _leaves(value):
                if array is not None:
                    self._note(device, parameter, leaf, (), (), (), array, argument=leaf)
                leaf += 1

    def value(self, run: InstructionEvaluation, operands: Sequence[Any], value: Any) -> Any:
        instruction = run.instruction
        if instruction.op.lowering in PASSING or isinstance(value, Pending):
            return value
        if self._change is not None:
            value = self._change(run, operands, value)
        makers, loops = self._makers[run.device.id], run.world.loops
        made_of = []
        for operand in operands:
            for array in (operand,) if isinstance(operand, np.ndarray) else _leaves(operand):
                number = _maker(makers, array)
                if number is not None:
                    made_of.append(number)
        names = tuple([loop.instruction.name for loop in loops]) if loops else ()
        iterations = tuple([loop.iterations - 1 for loop in loops]) if loops else ()
        for leaf, array in enumerate((value,) if isinstance(value, np.ndarray) else _leaves(value)):
            if array is not None:
                self._note(run.device, instruction, leaf, iterations, names, tuple(made_of), array)
        return value

    def maker(self, device: int, array: Any) -> Recorded | None:
        """What is recorded of this very array."""
        number = _maker(self._makers[device], array)
        return None if number is None else self.arrays[number]

    def _note(
        self,
        device: Device,
        instruction: Instruction,
        leaf: int,
        iterations: Iterations,
        loops: tuple[str, ...],
        made_of: tuple[int, ...],
        array: Array,
        argument: int | None = None,
    ) -> None:
        makers = self._makers[device.id]
        if made_of and _maker(makers, array) is not None:
            return  # the operand itself, as a copy gives it
        place = device.id, id(instruction), leaf, iterations
        count = self._executions.get(place, 0)
        self._executions[place] = count + 1
        key = (id(instruction), leaf, iterations, count)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Recorded(
                len(self.arrays),
                instruction,
                device.module,
                leaf,
                iterations,
                loops,
                made_of,
                array.shape,
                array.dtype,
                argument=argument,
            )
            self.arrays.append(found)
        found.values[device.id] = self._store.keep(array)
        makers[id(array)] = weakref.ref(array), found.number


def _maker(makers: Makers, array: Any) -> int | None:
    found = makers.get(id(array))
    return found[1] if found is not None and found[0]() is array else None


def _leaves(value: Any) -> list[Any]:
    """None for tokens and for what is pending."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value if isinstance(value, np.ndarray) else None]


__all__ = ["PASSING", "Recorded", "Recording"]
