"""A value before the run: a constant, a constant for each device, or unknown, with a uniformity class for each
device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from distxla.errors import DistxlaError
from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.unwritten import empty
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.support.executable import executable
from distxla.scheduler.simulation.traces import Ticket

MOST_ELEMENTS = 4096  # of a value that is computed; larger ones decide nothing in practice
MOST_STEPS = 2000  # instructions that one value may take

Uniformity = dict[int, Hashable] | None  # by device: equal where the value is; empty: everywhere; None: nowhere known


@dataclass(frozen=True, eq=False)
class Constant:
    """The same array on all devices; None for a token."""

    array: Any


@dataclass(frozen=True, eq=False)
class PerDeviceConstant:
    """A constant or an async start's context for each device, not the same for all."""

    by_device: Mapping[int, Constant | Ticket]


@dataclass(frozen=True, eq=False)
class Unknown:
    """Depends on values that only the run has. term: equal terms mean equal values on devices of equal uniformity
    classes.  cause: where it comes from."""

    term: int
    uniformity: Uniformity
    cause: Instruction


@dataclass(frozen=True, eq=False)
class Parts:
    """A tuple, of things that can be forced."""

    elements: tuple[Any, ...]


Value = Constant | PerDeviceConstant | Unknown | Parts | Ticket


class Terms:
    """Numbers for structures: equal ones get equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, *structure: Hashable) -> int:
        return self._numbers.setdefault(structure, len(self._numbers))

    def fresh(self) -> int:
        return self.number("fresh", len(self._numbers))


def meet(uniformity: Iterable[Uniformity], devices: Iterable[int]) -> Uniformity:
    """The uniformity classes by which all of several values are the same."""
    some: list[dict[int, Hashable]] = []
    for each in uniformity:
        if each is None:
            return None
        if each and not any(each is other for other in some):
            some.append(each)
    if len(some) < 2:
        return some[0] if some else {}
    return {device: tuple(each.get(device) for each in some) for device in devices}


def first_cause(values: Iterable[Value]) -> Unknown | None:
    """The unknown value that differs most between devices: it keeps them from taking the same decision."""
    unknown = [value for value in values if isinstance(value, Unknown)]
    return min(unknown, key=lambda value: 0 if value.uniformity is None else 1 if value.uniformity else 2, default=None)


def restricted(value: Value, devices: frozenset[int]) -> Value:
    """A value restricted to some of the devices."""
    if not isinstance(value, PerDeviceConstant):
        return value
    mine = {device: value.by_device[device] for device in devices if device in value.by_device}
    kinds = list(mine.values())
    first = kinds[0] if kinds else None
    if first is not None and all(same(first, other) for other in kinds):
        return first
    return PerDeviceConstant(mine)


def same(one: Value, other: Value) -> bool:
    if one is other:
        return True
    if isinstance(one, Constant) and isinstance(other, Constant):
        return content(one) == content(other)
    return False


def content(value: Constant) -> Hashable:
    if value.array is None:
        return None
    array = np.asarray(value.array)
    return array.dtype.str, array.dtype.name, array.shape, array.tobytes()


class _Exceeded(Exception):
    """A value takes too long to compute here."""


@dataclass
class _Run:
    """`ops.support.evaluation.Evaluation` of one instruction of one device, without others."""

    module: Module
    instruction: Instruction
    operand_shapes: tuple[Shape, ...]
    replica: int
    partition: int
    steps: list[int]

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def exchange(self) -> Any:
        raise _Exceeded

    def advance_state(self, delta: int) -> int:
        raise _Exceeded

    def join(self, operands: tuple[Any, ...]) -> Any:
        raise _Exceeded

    def computation(self, name: str) -> Computation:
        return self.module[name]

    def call(self, computation: str, *arguments: Any) -> Any:
        return self._called(computation, arguments, self.module[computation].root)

    def _called(self, computation: str, arguments: Sequence[Any], result: str) -> Any:
        called = self.module[computation]
        values: dict[str, Any] = {}
        for instruction in called:
            self.steps[0] -= 1
            if self.steps[0] < 0:
                raise _Exceeded
            if instruction.op.role.is_parameter:
                values[instruction.name] = arguments[instruction.op.number]  # type: ignore[attr-defined]
                continue
            shapes = tuple(called[o].shape for o in instruction.operands)
            values[instruction.name] = self._of(instruction, shapes, [values[o] for o in instruction.operands])
        return values[result]

    def _of(self, instruction: Instruction, shapes: tuple[Shape, ...], operands: Sequence[Any]) -> Any:
        if not is_small((instruction.shape, *shapes)) or instruction.op.effects is not Effects.PURE:
            raise _Exceeded
        run = _Run(self.module, instruction, shapes, self.replica, self.partition, self.steps)
        return executable(instruction.op).evaluate(run, *operands)

    def run_module(self, module: Module, *arguments: Any) -> Any:
        return replace(self, module=module).call(module.entry, *arguments)

    def map(self, computation: str, *arguments: Any, result: str | None = None) -> tuple[Any, ...]:
        called = self.module[computation]
        root = called[result or called.root]
        leaves = tuple(root.shape.leaves())
        results = tuple(empty(arguments[0].shape, leaf.dtype.dtype) for leaf in leaves)
        for index in np.ndindex(arguments[0].shape):
            found = self._called(computation, [a[index] for a in arguments], root.name)
            for to, value in zip(results, found if root.shape.is_tuple else (found,), strict=True):
                to[index] = value
        return results


def is_small(shapes: Iterable[Shape]) -> bool:
    """Whether values of these shapes are worth computing, and can be."""
    leaves = [leaf for shape in shapes for leaf in shape.leaves()]
    if any(leaf.is_array and (leaf.is_dynamic or leaf.is_unbounded) for leaf in leaves):
        return False
    return sum(leaf.size for leaf in leaves if leaf.is_array) <= MOST_ELEMENTS


def evaluated(
    module: Module, instruction: Instruction, shapes: tuple[Shape, ...], operands: Sequence[Any], where: tuple[int, int]
) -> Any:
    """The instruction's value on the device of that (replica, partition), by the op's NumPy answer.

    LookupError where it can't be computed here.
    """
    run = _Run(module, instruction, shapes, *where, [MOST_STEPS])
    try:
        with np.errstate(all="ignore"):
            found = executable(instruction.op).evaluate(run, *operands)
    except (_Exceeded, DistxlaError, ArithmeticError, ValueError, TypeError, LookupError, MemoryError) as error:
        raise LookupError(str(error)) from None
    return found


__all__ = [
    "Constant",
    "Parts",
    "PerDeviceConstant",
    "Terms",
    "Uniformity",
    "Unknown",
    "Value",
    "content",
    "evaluated",
    "first_cause",
    "is_small",
    "meet",
    "restricted",
    "same",
]
