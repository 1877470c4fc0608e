"""The two halves of a collective's round as instructions: what asynchronous pairs become before code is emitted.

The first half reaches the round and goes on, the second waits for its end. Their ops are made from the collective's
own: classes `<Collective>Begun` and `<Collective>Ended` with its attributes, which no text has.

    (T_0, .., U, u64[])  begun(T_0, ..)     operands, result and number of the round
    U                    ended(begun)

The operands' leaves are the operands themselves, and ended's result is begun's U: by the ordinary lifetimes of values
everything that other devices read or write stays as it is from the first half to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.element_type import U64
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering, Op
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.support.collective import GroupedCollective, synchronous
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.expansion import Build

TICKET = Shape(U64)


class Half(Enum):
    """Which part of a round an instruction is."""

    WHOLE = "whole"
    BEGUN = "begun"
    ENDED = "ended"


class _HalfRound(CollectiveOp):
    """What both halves differ in from the collective that they are made from."""

    lowering: ClassVar[Lowering] = Lowering.COMMUNICATION
    in_place_operand: ClassVar[int | None] = None
    combines: ClassVar[bool] = False

    @property
    def round_opcode(self) -> str:
        return whole(self).opcode

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, which finds no class that is made when it is asked for."""
        return half, (whole(self), half_of(self))


class _Begun(_HalfRound):
    starts_pair: ClassVar[bool] = True

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape | None:
        result = whole(self).infer_shape(operands, called)
        return None if result is None else begun_shape(operands, result)

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        whole(self).verify((shape.elements or ())[-2], operands, called)

    def check_size(self, shape: Shape, operands: Sequence[Shape], size: int) -> None:
        _check_size(self, (shape.elements or ())[-2], operands, size)

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        own = sum(1 for _ in shape.leaves()) - len(operands)
        return (*range(len(operands)), *(None,) * own)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return *operands, run.exchange.begin(operands), np.zeros((), np.uint64)


class _Ended(_HalfRound):
    only_waits: ClassVar[bool] = True
    min_operands: ClassVar[int] = 1
    max_operands: ClassVar[int | None] = 1

    def infer_shape(self, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> Shape:
        return (operands[0].elements or ())[-2]

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        Op.verify(self, shape, operands, called)

    def check_size(self, shape: Shape, operands: Sequence[Shape], size: int) -> None:
        _check_size(self, shape, (operands[0].elements or ())[:-2], size)

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        first = len(operands[0].elements or ()) - 2
        return tuple(range(first, first + sum(1 for _ in shape.leaves())))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.exchange.finish(operands[0][-2])


_HALVES: dict[tuple[type[CollectiveOp], Half], type[CollectiveOp]] = {}


def _half_class(op_class: type[CollectiveOp], half: Half) -> type[CollectiveOp]:
    found = _HALVES.get((op_class, half))
    if found is None:
        begun = f"{op_class.opcode}-start"
        if half is Half.BEGUN:
            found = type(f"{op_class.__name__}Begun", (_Begun, op_class), {"opcode": begun})
        else:
            members = {"opcode": f"{op_class.opcode}-done", "completes": (begun,)}
            found = type(f"{op_class.__name__}Ended", (_Ended, op_class), members)
        _HALVES[op_class, half] = found
    return found


def half(op: CollectiveOp, which: Half) -> CollectiveOp:
    """A half of a whole collective, or the collective itself."""
    return op if which is Half.WHOLE else synchronous(op, _half_class(type(op), which))


def half_of(op: Op) -> Half:
    if isinstance(op, _Begun):
        return Half.BEGUN
    return Half.ENDED if isinstance(op, _Ended) else Half.WHOLE


def whole(op: Op) -> CollectiveOp:
    """The collective of which the op is a half; a whole one itself."""
    assert isinstance(op, CollectiveOp)
    if half_of(op) is Half.WHOLE:
        return op
    _, op_class = type(op).__bases__
    return synchronous(op, op_class)


def _check_size(op: CollectiveOp, shape: Shape, operands: Sequence[Shape], size: int) -> None:
    collective = whole(op)
    assert isinstance(collective, GroupedCollective)
    collective.check_size(shape, operands, size)


def begun_shape(operands: Sequence[Shape], result: Shape) -> Shape:
    return Shape.tuple((*(operand.without_layout() for operand in operands), result, TICKET))


def of_whole(instruction: Instruction, operands: tuple[Shape, ...]) -> tuple[tuple[Shape, ...], Shape]:
    """The operands and the result that the whole collective has. operands: the shapes of the operands' leaves."""
    which = half_of(instruction.op)
    if which is Half.BEGUN:
        return operands, (instruction.shape.elements or ())[-2]
    if which is Half.ENDED:
        results = sum(1 for _ in instruction.shape.leaves())
        return operands[: len(operands) - results - 1], instruction.shape
    return operands, instruction.shape


def single_collective(computation: Computation) -> CollectiveOp | None:
    """The collective if the computation is nothing but one, on its parameters in their order."""
    *parameters, root = computation
    op = root.op
    if not isinstance(op, CollectiveOp) or op.lowering is not Lowering.COMMUNICATION or half_of(op) is not Half.WHOLE:
        return None
    if root.name != computation.root or not all(p.op.is_parameter for p in parameters):
        return None
    return op if root.operands == tuple(p.name for p in computation.parameters) else None


def begin(build: Build, instruction: Instruction, collective: CollectiveOp, result: Shape) -> str:
    """Expand a start: begin the round of `collective`, whose result has shape `result`, on the start's operands.

    In modules with dynamic dimensions, whose members agree on dimension sizes first, collectives run as a whole; so do
    those that are made of several instructions. Then what this gives is the result.
    """
    result = result.without_layout()
    if build.is_static and collective.lowering is Lowering.COMMUNICATION:
        collective = half(collective, Half.BEGUN)
        result = begun_shape([build.shape(name) for name in instruction.operands], result)
    return build.add(collective, *instruction.operands, shape=result, name=instruction.name)


def is_begun(build: Build, name: str) -> bool:
    """Whether the instruction that `begin` gave is a half."""
    return half_of(build.op(name)) is Half.BEGUN


def end(build: Build, instruction: Instruction) -> str | None:
    """Expand a done whose start `begin` has halved; None where the start ran as a whole."""
    begun = instruction.operands[0]
    if not is_begun(build, begun):
        return None
    ended = half(whole(build.op(begun)), Half.ENDED)
    return build.add(ended, begun, shape=instruction.shape.without_layout(), name=instruction.name)
