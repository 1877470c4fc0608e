"""The communicating instructions of a module, and the loops and branches around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from distxla.collectives.signature import structure
from distxla.diagnosis.facts.blocked import Place
from distxla.ir.computation import Computation
from distxla.ir.effects import COMMUNICATING
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Located:
    """An instruction and its place. position: in its computation, which is the order of execution."""

    module: Module
    computation: Computation
    position: int
    instruction: Instruction

    def __str__(self) -> str:
        """`all-reduce.7 (step.hlo:12:3)`."""
        return str(self.place)

    @property
    def place(self) -> Place:
        instruction = self.instruction
        op_name = instruction.metadata.op_name if instruction.metadata else ""
        return Place(instruction.name, instruction.opcode, self.module.locate(instruction), op_name)

    @property
    def operands(self) -> tuple[Shape, ...]:
        return tuple(operand.shape for operand in self.computation.operands(self.instruction))


@dataclass(frozen=True)
class Enclosing:
    """A loop or a conditional. computation: the one that it calls, which holds the enclosed instruction."""

    by: Located
    computation: str

    @property
    def is_loop(self) -> bool:
        return self.by.instruction.op.role.is_loop

    def is_same(self, other: Enclosing) -> bool:
        """Whether it is the same instruction, whatever it calls."""
        return self.by.instruction is other.by.instruction


def communicating(module: Module) -> Sequence[Located]:
    """All communicating instructions of a module."""
    return _known(_Key(module)).communicating


def caller(module: Module, computation: str) -> Located | None:
    """One instruction that calls a computation."""
    return _known(_Key(module)).callers.get(computation)


def found(module: Module, name: str, computation: str = "") -> Located | None:
    """The communicating instruction of that name, in that computation if it has one there."""
    named_so = [one for one in communicating(module) if one.instruction.name == name]
    return next((one for one in named_so if one.computation.name == computation), next(iter(named_so), None))


def enclosing(module: Module, computation: str) -> tuple[Enclosing, ...]:
    """The loops and conditionals around a computation's instructions, outermost first."""
    around: list[Enclosing] = []
    while (by := caller(module, computation)) is not None:
        if by.instruction.op.role.is_loop or by.instruction.op.role.is_conditional:
            around.insert(0, Enclosing(by, computation))
        computation = by.computation.name
    return tuple(around)


def has_passed(at: Located, earlier: Located) -> bool:
    """Whether a device at `at` has executed `earlier` before it, in the same iteration of every loop around both."""
    place: Located | None = at
    while place is not None:
        if place.computation is earlier.computation:
            return earlier.position < place.position
        place = caller(place.module, place.computation.name)
    return False


def start_of(located: Located) -> Located:
    """Of an asynchronous pair the instruction that reaches the round; any other one itself."""
    instruction = located.instruction
    while instruction.op.start_done.completes and instruction.operands:
        instruction = located.computation[instruction.operands[0]]
    position = next(i for i, other in enumerate(located.computation) if other is instruction)
    return Located(located.module, located.computation, position, instruction)


def structure_of(module: Module, computation: str) -> str:
    """A computation's structure, independent of names."""
    structures = _known(_Key(module)).structures
    if computation not in structures:
        structures[computation] = structure(module, module[computation])
    return structures[computation]


class _Key:
    """A module by identity: comparing modules costs more than reading them."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __hash__(self) -> int:
        return id(self.module)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.module is self.module


@dataclass(frozen=True)
class _Known:
    communicating: Sequence[Located]
    callers: Mapping[str, Located]
    structures: dict[str, str]


@lru_cache(maxsize=16)
def _known(key: _Key) -> _Known:
    every: list[Located] = []
    callers: dict[str, Located] = {}
    for computation in key.module.computations:
        for position, instruction in enumerate(computation):
            located = Located(key.module, computation, position, instruction)
            if instruction.op.effects in COMMUNICATING:
                every.append(located)
            for name in instruction.op.called_computations:
                callers.setdefault(name, located)
    return _Known(tuple(every), callers, {})
