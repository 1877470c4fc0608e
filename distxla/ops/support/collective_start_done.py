"""Start and done of a collective's round as instructions: asynchronous pairs become these before code is emitted.

The start enters the round and goes on, the done waits for its end. Their ops are made from the collective's
own: classes `<Collective>AsyncStart` and `<Collective>AsyncDone` with its attributes, which no text has.

    (T_0, .., U, u64[])  start(T_0, ..)     operands, result and number of the round
    U                    done(start)

The operands' leaves are the operands themselves, and the done's result is the start's U: by the ordinary lifetimes of
values everything that other devices read or write stays as it is from the start to the done.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from distxla.ir.computation import Computation
from distxla.ir.element_type import U64
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering, Op
from distxla.ir.op_traits import InPlaceKernel, OperandCount, StartDone, exactly
from distxla.ir.shape import Called, Shape
from distxla.lazy_dataclass import replace
from distxla.ops.support.collective import synchronous
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import CollectiveOp, ExecutableOp
from distxla.ops.support.expansion import Build

TICKET = Shape(U64)


class AsyncPart(Enum):
    """Which part of a round an instruction executes."""

    SYNCHRONOUS = "synchronous"
    START = "start"
    DONE = "done"


class _PartOfRound(CollectiveOp):
    """Properties of start and done that differ from those of their collective."""

    lowering: ClassVar[Lowering] = Lowering.COMMUNICATION
    in_place: ClassVar[InPlaceKernel] = InPlaceKernel()

    @property
    def round_opcode(self) -> str:
        return whole(self).opcode

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, which finds no class that is made when it is asked for."""
        return async_part, (whole(self), async_part_of(self))


class _Start(_PartOfRound):
    start_done: ClassVar[StartDone] = StartDone(starts_pair=True)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape | None:
        result = whole(self).infer_shape(operands, called)
        return None if result is None else start_shape(operands, result)

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        whole(self).verify((shape.elements or ())[-2], operands, called)

    def check_size(self, shape: Shape, operands: Sequence[Shape], size: int) -> None:
        whole(self).check_size((shape.elements or ())[-2], operands, size)

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        own = sum(1 for _ in shape.leaves()) - len(operands)
        return (*range(len(operands)), *(None,) * own)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return *operands, run.exchange.begin(operands), np.zeros((), np.uint64)


class _Done(_PartOfRound):
    only_waits: ClassVar[bool] = True
    operand_count: ClassVar[OperandCount] = exactly(1)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return (operands[0].elements or ())[-2]

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        Op.verify(self, shape, operands, called)

    def check_size(self, shape: Shape, operands: Sequence[Shape], size: int) -> None:
        whole(self).check_size(shape, (operands[0].elements or ())[:-2], size)

    def aliased_leaves(self, shape: Shape, operands: Sequence[Shape]) -> tuple[int | None, ...]:
        first = len(operands[0].elements or ()) - 2
        return tuple(range(first, first + sum(1 for _ in shape.leaves())))

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.exchange.finish(operands[0][-2])


class EndOfPair(ExecutableOp):
    """An op that ends what the start that is its operand has begun. Its result is the second part of the operand's."""

    mixes_precision: ClassVar[bool] = False
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = exactly(1)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return run.exchange.finish(operands[0][1])

    def expand(self, build: Build, instruction: Instruction) -> str:
        return end(build, instruction) or build.element(instruction.operands[0], 1)


_PARTS: dict[tuple[type[CollectiveOp], AsyncPart], type[CollectiveOp]] = {}


def _part_class(op_class: type[CollectiveOp], which: AsyncPart) -> type[CollectiveOp]:
    found = _PARTS.get((op_class, which))
    if found is None:
        begun = f"{op_class.opcode}-start"
        members: dict[str, Any] = {"round": replace(op_class.round, combines=False)}
        if which is AsyncPart.START:
            members |= {"opcode": begun}
            found = type(f"{op_class.__name__}AsyncStart", (_Start, op_class), members)
        else:
            members |= {"opcode": f"{op_class.opcode}-done", "start_done": StartDone(completes=(begun,))}
            found = type(f"{op_class.__name__}AsyncDone", (_Done, op_class), members)
        _PARTS[op_class, which] = found
    return found


def async_part(op: CollectiveOp, which: AsyncPart) -> CollectiveOp:
    """The start or the done of a synchronous collective, or the collective itself."""
    return op if which is AsyncPart.SYNCHRONOUS else synchronous(op, _part_class(type(op), which))


def async_part_of(op: Op) -> AsyncPart:
    if isinstance(op, _Start):
        return AsyncPart.START
    return AsyncPart.DONE if isinstance(op, _Done) else AsyncPart.SYNCHRONOUS


def whole(op: Op) -> CollectiveOp:
    """The collective of which the op is the start or the done; a synchronous one itself."""
    assert isinstance(op, CollectiveOp)
    if async_part_of(op) is AsyncPart.SYNCHRONOUS:
        return op
    _, op_class = type(op).__bases__
    return synchronous(op, op_class)


def start_shape(operands: Sequence[Shape], result: Shape) -> Shape:
    return Shape.tuple((*(operand.without_layout() for operand in operands), result, TICKET))


def of_whole(instruction: Instruction, operands: tuple[Shape, ...]) -> tuple[tuple[Shape, ...], Shape]:
    """The operands and the result that the whole collective has. operands: the shapes of the operands' leaves."""
    which = async_part_of(instruction.op)
    if which is AsyncPart.START:
        return operands, (instruction.shape.elements or ())[-2]
    if which is AsyncPart.DONE:
        results = sum(1 for _ in instruction.shape.leaves())
        return operands[: len(operands) - results - 1], instruction.shape
    return operands, instruction.shape


def single_collective(computation: Computation) -> CollectiveOp | None:
    """The collective if the computation is nothing but one, on its parameters in their order."""
    *parameters, root = computation
    op = root.op
    if (
        not isinstance(op, CollectiveOp)
        or op.lowering is not Lowering.COMMUNICATION
        or async_part_of(op) is not AsyncPart.SYNCHRONOUS
    ):
        return None
    if root.name != computation.root or not all(p.op.role.is_parameter for p in parameters):
        return None
    return op if root.operands == tuple(p.name for p in computation.parameters) else None


def begin(build: Build, instruction: Instruction, collective: CollectiveOp, result: Shape) -> str:
    """Expand a start: begin the round of `collective`, whose result has shape `result`, on the start's operands.

    In modules with dynamic dimensions, whose members agree on dimension sizes first, collectives run as a whole; so do
    those that are made of several instructions. Then the returned value is the result.
    """
    result = result.without_layout()
    if build.is_static and collective.lowering is Lowering.COMMUNICATION:
        collective = async_part(collective, AsyncPart.START)
        result = start_shape([build.shape(name) for name in instruction.operands], result)
    return build.add(collective, *instruction.operands, shape=result, name=instruction.name)


def is_begun(build: Build, name: str) -> bool:
    """Whether the instruction that `begin` gave is a start."""
    return async_part_of(build.op(name)) is AsyncPart.START


def end(build: Build, instruction: Instruction) -> str | None:
    """Expand a done whose start `begin` has begun; None where the start ran as a whole."""
    begun = instruction.operands[0]
    if not is_begun(build, begun):
        return None
    ended = async_part(whole(build.op(begun)), AsyncPart.DONE)
    return build.add(ended, begun, shape=instruction.shape.without_layout(), name=instruction.name)
